"""A store that is put back from a backup, or copied, and the files that it writes."""

from __future__ import annotations

import json
import logging
import shutil
from collections import Counter
from pathlib import Path

import pytest
from tests.unit.snapshot.small_flow import Row, SmallFlow, output_of, state_of

import riverlock as rl
from riverlock.core.errors import CommitRejectedError, FencedError, StoreChangedError
from riverlock.driver.region_loop import RegionDriver
from riverlock.snapshot.format.records import SinkOutput

ROWS: list[Row] = [(f"k{n * 7 % 5}", n % 11) for n in range(60)]


def copied(store: Path, to: Path) -> Path:
    shutil.rmtree(to, ignore_errors=True)
    shutil.copytree(store, to)
    return to


def aside(out: Path) -> list[str]:
    return sorted(p.name for p in out.glob("_riverlock/withdrawn/*/epoch=*"))


def test_a_store_put_back_writes_anew_what_it_decides_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store, out = tmp_path / "store", tmp_path / "out"
    flow = SmallFlow(store, ROWS[:30], out)
    flow.run(4)
    backup = copied(store, tmp_path / "backup")
    assert flow.run() == 9
    copied(backup, store)

    # More input has come meanwhile, and epochs end elsewhere.
    flow = SmallFlow(store, ROWS, out)
    with caplog.at_level(logging.WARNING):
        flow.run(epoch_rows=9)

    assert flow.state() == state_of(ROWS)
    assert flow.output() == output_of(ROWS)
    assert len(aside(out)) == 6, "nothing is destroyed"
    assert "6 from 4 to 9" in caplog.text
    assert str(out / "_riverlock/withdrawn") in caplog.text


def test_a_backup_made_while_the_run_was_alive(tmp_path: Path) -> None:
    store, out = tmp_path / "store", tmp_path / "out"
    backup = tmp_path / "backup"
    flow = SmallFlow(store, ROWS, out)
    epochs = 0

    def after(_: object) -> None:
        nonlocal epochs
        epochs += 1
        if epochs == 3:
            copied(store, backup)

    flow.after = after
    flow.run(7)
    copied(backup, store)

    flow = SmallFlow(store, ROWS, out)
    flow.run(epoch_rows=8)
    assert flow.output() == output_of(ROWS)
    assert len(aside(out)) == 4


def test_a_store_put_back_to_before_its_first_epoch(tmp_path: Path) -> None:
    store, out = tmp_path / "store", tmp_path / "out"
    flow = SmallFlow(store, ROWS, out)
    flow.run(0)
    backup = copied(store, tmp_path / "backup")
    flow.run(2)
    copied(backup, store)
    flow.run()
    assert flow.output() == output_of(ROWS)


def test_output_of_the_version_before_is_kept(tmp_path: Path) -> None:
    store, out = tmp_path / "store", tmp_path / "out"
    flow = SmallFlow(store, ROWS, out)
    flow.run(4)
    backup = copied(store, tmp_path / "backup")
    flow.run(3)
    _forget_identities(out)

    assert flow.run(1) == 7, "goes on, with nothing moved"
    assert aside(out) == []

    _forget_identities(out)
    copied(backup, store)
    flow.run()
    assert flow.output() == output_of(ROWS), "numbers alone prove that these are others"
    assert len(aside(out)) == 4


def _forget_identities(out: Path) -> None:
    """Leave what the version before has left."""
    (out / "_riverlock/run.json").unlink()
    for path in out.glob("_riverlock/0*.json"):
        told = json.loads(path.read_bytes())
        path.write_text(json.dumps({k: told[k] for k in ("epoch", "files")}))


def test_two_copies_of_a_store_take_turns_only_at_starts(tmp_path: Path) -> None:
    out = tmp_path / "out"
    first = SmallFlow(tmp_path / "store", ROWS, out)
    first.run(4)
    second = SmallFlow(copied(first.store, tmp_path / "copy"), ROWS, out)
    first.run(4)

    second.run(2, epoch_rows=5)
    assert second.output() == output_of(ROWS[:22])
    # Each start has the output of its own store in sight, whoever ran between.
    first.run(0)
    assert first.output() == output_of(ROWS[:24])
    second.run()
    assert second.output() == output_of(ROWS)
    first.run()
    assert first.output() == output_of(ROWS)


def test_a_run_whose_directory_a_copy_has_taken_stops(tmp_path: Path) -> None:
    out = tmp_path / "out"
    first = SmallFlow(tmp_path / "store", ROWS, out)
    first.run(2)
    second = SmallFlow(copied(first.store, tmp_path / "copy"), ROWS, out)
    seen: list[Counter[Row]] = []

    def overtake(_: object) -> None:
        if not seen:
            second.run(2)
            seen.append(Counter(second.output()))

    first.after = overtake
    with pytest.raises(FencedError, match="of another copy of the store"):
        first.run()
    assert seen == [first.output()], "it changed nothing"
    second.run()
    assert second.output() == output_of(ROWS)


def test_a_start_that_died_while_it_moved_epochs_is_completed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    first = SmallFlow(tmp_path / "store", ROWS, out)
    first.run(3)
    second = SmallFlow(copied(first.store, tmp_path / "copy"), ROWS, out)
    first.run(3)
    second.run(2, epoch_rows=7)

    def die(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("riverlock.connectors.files.moves.Arrangement._show", die)
        with pytest.raises(KeyboardInterrupt):
            first.run()
    first.run()
    assert first.output() == output_of(ROWS)


def test_epochs_that_another_branch_has_undone_come_back(tmp_path: Path) -> None:
    store, out = tmp_path / "store", tmp_path / "out"
    flow = SmallFlow(store, ROWS, out)
    flow.run(6)
    backup = copied(store, tmp_path / "backup")
    rl.stores.restore(f"{store}@2")
    flow.run(2)
    copied(backup, store)
    flow.run()
    assert flow.output() == output_of(ROWS)


def test_a_copy_that_listed_the_same_number_first_is_not_taken_for_ours(
    tmp_path: Path,
) -> None:
    """Between a start and a commit; what decides is who lists the epoch."""
    out = tmp_path / "out"
    flow = SmallFlow(tmp_path / "store", ROWS, out)

    def list_another(_: object) -> None:
        listing = {"epoch": 1, "files": [], "run": "another", "digest": "another"}
        (out / "_riverlock/000000000001.json").write_text(json.dumps(listing))

    flow.after = list_another
    with pytest.raises(CommitRejectedError, match="this store has not decided"):
        flow.run(2)


@pytest.mark.parametrize("field", ["name", "staged"])
def test_tokens_that_lead_out_of_the_directory_are_refused(
    tmp_path: Path, field: str
) -> None:
    """A store from somebody else must not write, or read, beside the output."""
    from riverlock.connectors.builtin_committers import FileCommitter
    from riverlock.connectors.files.sink import FileSink

    secret = tmp_path / "secret"
    secret.write_text("mine")
    out = tmp_path / "out"
    staged = out / "_riverlock/staged/000000000000/a"
    staged.parent.mkdir(parents=True)
    staged.write_text("theirs")
    token = {
        "root": str(out),
        "staged": "_riverlock/staged/000000000000/a",
        "name": "part-a.json",
        "rows": 1,
        "bytes": 6,
        "checksum": "",
    }
    for path in ("../../secret", "../../../stolen", str(tmp_path / "stolen"), "a/../b"):
        crafted = SinkOutput(kind="files", tokens=({**token, field: path},))
        with pytest.raises(CommitRejectedError, match="not inside the output"):
            FileCommitter(FileSink(path=str(out), format="json")).commit(0, crafted)
    assert not (tmp_path / "stolen").exists()
    assert list(out.glob("epoch=*")) == []
    assert secret.read_text() == "mine"


def put_back_under_it(flow: SmallFlow, backup: Path, *, when: int) -> None:
    """Replace the store of a live run; its working copies are elsewhere."""

    def after(driver: RegionDriver) -> None:
        newest = driver.catalog.epochs()[-1:]
        regions = flow.store / "regions"
        if newest == [5] and not backup.exists():
            copied(regions, backup)
        if newest == [when]:
            shutil.rmtree(regions)
            if any(backup.glob("*")):
                shutil.copytree(backup, regions)

    flow.after = after


@pytest.mark.parametrize("of", ["an earlier run", "the same run", "nothing"])
def test_a_store_put_back_under_a_live_run_ends_it(tmp_path: Path, of: str) -> None:
    store, out, backup = tmp_path / "store", tmp_path / "out", tmp_path / "backup"
    flow = SmallFlow(store, ROWS, out)
    flow.run(4)
    if of == "an earlier run":
        copied(store / "regions", backup)
    elif of == "nothing":
        backup.mkdir()
    put_back_under_it(flow, backup, when=9)

    with pytest.raises(StoreChangedError) as told:
        flow.run()

    assert told.value.epoch == 10
    assert "epoch 10 was not decided" in str(told.value)
    assert "backup" in str(told.value)
    kept = {"an earlier run": 4, "the same run": 6, "nothing": 0}[of]
    assert flow.catalog.epochs() == list(range(kept)), "nothing without its past"


def test_a_store_put_back_under_a_live_run_goes_on_at_the_next_start(
    tmp_path: Path,
) -> None:
    store, out, backup = tmp_path / "store", tmp_path / "out", tmp_path / "backup"
    flow = SmallFlow(store, ROWS, out)
    put_back_under_it(flow, backup, when=9)
    with pytest.raises(StoreChangedError):
        flow.run()

    flow.after = lambda _: None
    flow.run()

    assert flow.state() == state_of(ROWS)
    assert flow.output() == output_of(ROWS)
