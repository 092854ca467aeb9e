"""Files in an object store; what all sinks promise is in tests/conformance."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

import riverlock as rl
from riverlock.core.errors import CommitRejectedError, FencedError
from riverlock.snapshot.format.records import SinkOutput
from riverlock.storage.local import LocalStorage
from riverlock.storage.object import ObjectStorage
from riverlock.testing import SinkRun


def run(path: str, store: Path, number: int = 1) -> SinkRun:
    sink = rl.sinks.files(path, format="json")
    return SinkRun(sink=sink, storage=LocalStorage(store), run=number, flow="f")


def ids(out: Path) -> list[int]:
    """Return what a reader of all folders sees."""
    lines = [x for f in out.glob("epoch=*/*") for x in f.read_text().splitlines()]
    return sorted(msgspec.json.decode(line)["id"] for line in lines)


def test_files_of_an_epoch_that_was_half_committed_are_withdrawn_too(
    tmp_path: Path,
) -> None:
    out = tmp_path / "out"
    out.mkdir()
    of = run(f"file://{out}", tmp_path / "store")
    of.commit(1, of.stage(1, [(1, "a", 1)]))
    voted = of.stage(2, [(2, "b", 2)])
    # As if the run had died between the copy and the listing.
    (token,) = voted.tokens
    root = ObjectStorage(f"file://{out}")
    root.copy(token["staged"], f"epoch={2:012d}/{token['name']}")
    assert ids(out) == [1, 2]

    again = run(f"file://{out}", tmp_path / "store", 2)
    order = {"root": f"file://{out}", "withdraw": [[2, 2]], "reinstate": []}
    again.commit(3, SinkOutput(kind="files", tokens=(order,)))
    assert ids(out) == [1]

    back = {"root": f"file://{out}", "withdraw": [], "reinstate": [[2, 2]]}
    again.commit(4, SinkOutput(kind="files", tokens=(back,)))
    assert ids(out) == [1]  # whole or not at all


def test_a_run_that_slept_in_its_commit_cannot_show_an_epoch_that_was_undone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    out.mkdir()
    of = run(f"file://{out}", tmp_path / "store")
    voted = of.stage(1, [(1, "a", 1)])
    copy, woken = ObjectStorage.copy, list[int]()

    def sleep_then_copy(self: ObjectStorage, source: str, target: str) -> None:
        monkeypatch.setattr(ObjectStorage, "copy", copy)
        newer = run(f"file://{out}", tmp_path / "store", 2)
        order = {"root": f"file://{out}", "withdraw": [[1, 1]], "reinstate": []}
        for epoch in (2, 2):
            newer.commit(epoch, SinkOutput(kind="files", tokens=(order,)))
        woken.append(1)
        copy(self, source, target)

    monkeypatch.setattr(ObjectStorage, "copy", sleep_then_copy)
    with pytest.raises(FencedError):
        of.commit(1, voted)

    assert woken
    assert ids(out) == []
    shown = msgspec.json.decode((out / "_riverlock" / f"{1:012d}.json").read_bytes())
    assert shown == {"epoch": 1, "files": []}


def test_an_epoch_is_completed_where_it_was_staged_whatever_the_place_is_now(
    tmp_path: Path,
) -> None:
    local, objects = tmp_path / "local", tmp_path / "objects"
    objects.mkdir()
    before = run(str(local), tmp_path / "store")
    voted = before.stage(1, [(1, "a", 1)])

    moved = run(f"file://{objects}", tmp_path / "store", 2)
    moved.commit(1, voted)
    moved.commit(1, voted)
    assert ids(local) == [1]
    second = moved.stage(2, [(2, "b", 2)])

    back = run(str(local), tmp_path / "store", 3)
    back.commit(2, second)
    back.commit(2, second)
    assert (ids(local), ids(objects)) == ([1], [2])

    roots = (str(local), f"file://{objects}")
    order = {"withdraw": [[1, 2]], "reinstate": []}
    tokens = tuple({"root": root, **order} for root in roots)
    back.commit(3, SinkOutput(kind="files", tokens=tokens))
    assert (ids(local), ids(objects)) == ([], [])
    again = {"withdraw": [], "reinstate": [[1, 2]]}
    tokens = tuple({"root": root, **again} for root in roots)
    run(f"file://{objects}", tmp_path / "store", 4).commit(
        4, SinkOutput(kind="files", tokens=tokens)
    )
    assert (ids(local), ids(objects)) == ([1], [2])


def test_an_epoch_that_was_staged_in_a_place_that_is_gone_is_refused(
    tmp_path: Path,
) -> None:
    local, objects = tmp_path / "local", tmp_path / "objects"
    objects.mkdir()
    voted = run(str(local), tmp_path / "store").stage(1, [(1, "a", 1)])
    local.rename(tmp_path / "elsewhere")

    with pytest.raises(CommitRejectedError, match="no longer exists"):
        run(f"file://{objects}", tmp_path / "store", 2).commit(1, voted)
    assert not local.exists()
