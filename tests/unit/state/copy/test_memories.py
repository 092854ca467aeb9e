"""What operators remember is told wherever the working copy goes."""

from __future__ import annotations

from riverlock.state.copy.layers import Layer
from riverlock.state.copy.memories import Memories
from riverlock.state.store import Version

V1, V2 = Version(1, "t", "s"), Version(2, "t", "s")


class Story:
    """A memory that remembers what it was told."""

    def __init__(self) -> None:
        self.told: list[object] = []

    def be_at(self, version: Version | None) -> None:
        self.told.append(version)

    def follow(self, layer: Layer, before: Version, after: Version) -> None:
        self.told.append((layer.ids.to_pylist(), before, after))


class Other(Story):
    """Of another operator's kind."""


def test_a_memory_is_made_once_at_the_version_that_is_read() -> None:
    memories = Memories()
    memories.be_at(V1)

    story = memories.of(Story)

    assert story.told == [V1]
    assert memories.of(Story) is story
    assert memories.of(Other) is not story


def test_all_memories_hear_where_the_copy_goes() -> None:
    memories = Memories()
    every = [memories.of(Story), memories.of(Other)]

    memories.follow(Layer.of([b"id"], [b"row"]), V1, V2)
    memories.be_at(V2)
    memories.be_at(None)

    assert [each.told for each in every] == [
        [None, ([b"id"], V1, V2), V2, None],
        [None, ([b"id"], V1, V2), V2, None],
    ]
