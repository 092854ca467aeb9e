"""The scale model drives the real thing, and says where it does not grow."""

from __future__ import annotations

import pytest
from benchmarks import scale_regions, scale_tasks
from benchmarks.scale_regions import SKEWS, layered
from benchmarks.scale_tasks import Shape

from riverlock.snapshot import file_lists


def test_with_lists_a_manifest_does_not_grow_with_merges(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(file_lists, "MOST", 20)
    monkeypatch.setattr(file_lists, "LONGEST", 20)
    shape = Shape(tasks=100, epochs=15, keys=100, touched=10)
    without = scale_tasks.measured(Shape(**{**vars(shape), "has_lists": False}))
    found = scale_tasks.measured(shape)

    # A dozen times as many files, in a manifest that has those of outputs besides.
    assert found["most"]["files"] == without["most"]["files"] >= 1_200
    assert found["most"]["manifest bytes"] < without["most"]["manifest bytes"] / 4
    assert found["told bytes"] < without["told bytes"] / 10
    # Nothing is written again that an epoch before had written.
    assert found["most"]["list bytes"] < without["most"]["manifest bytes"] / 2
    # All of it is read by who has nothing.
    assert found["recovery"]["state bytes"] == without["recovery"]["state bytes"]
    assert found["recovery"]["list bytes"] > found["next epoch"]["list bytes"] > 0


@pytest.mark.parametrize("protocol", scale_regions.PROTOCOLS)
def test_snapshots_of_many_regions_end(protocol: str | None) -> None:
    found = scale_regions.snapshot(layered(10, 20), SKEWS[1], protocol, before=3)

    assert (found["seconds"] is None) == (protocol is None)
    assert (found["rows in flight"] > 0) == (protocol == "unaligned")
    assert found["gets per second"] > 0
    # Ten regions, ten looks a second: the store is listed in few of them.
    assert found["listings per second"] < 60
