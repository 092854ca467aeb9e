"""State files that are too many for a manifest stand in lists beside it (§4.6)."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.compat.reader import read, unsealed
from tests.unit.snapshot.builders import KEYS, VARIABLES, manifest

import riverlock as rl
from riverlock.core.errors import SnapshotCorruptedError, UnsupportedFormatError
from riverlock.snapshot import file_lists, flow_file
from riverlock.snapshot.catalog import Catalog
from riverlock.snapshot.file_lists import Remembered, as_stored, listed, whole
from riverlock.snapshot.format import references
from riverlock.snapshot.format.records import (
    LISTS_FEATURE,
    Manifest,
    OperatorState,
    StateFile,
)
from riverlock.snapshot.retention.policy import Retention, sweep
from riverlock.storage import LocalStorage
from riverlock.storage.memory import MemoryStorage
from riverlock.testing import rows

COLUMNS = "user string, amount long"


@pytest.fixture
def many(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two files of the same epochs are many."""
    monkeypatch.setattr(file_lists, "MOST", 1)
    monkeypatch.setattr(file_lists, "LONGEST", 2)
    monkeypatch.setattr(file_lists, "_remembered", Remembered(0))


class Total(rl.Process):
    """Adds up."""

    output = "user string, total long"
    total = rl.Value("long", default=0)

    def on_event(self, record: Any, ctx: rl.Context) -> Any:
        self.total += record.amount
        yield record.user, self.total


def given_rows(count: int) -> list[tuple[str, int]]:
    return [(f"u{n % 13}", 1 + n % 7) for n in range(count)]


def flow_over(given: list[tuple[str, int]]) -> rl.Flow:
    flow = rl.Flow("totals", key_groups=16)
    flow.read(rows(COLUMNS, given, bounded=False), uid="in").key_by("user").process(
        Total(), uid="total"
    ).write(rl.sinks.memory(), uid="out")
    return flow


def run(store: str, count: int, **options: Any) -> None:
    flow_over(given_rows(count)).run(
        store, execution="local", available_now=True, max_rows_per_epoch=20, **options
    )


def expected(count: int) -> dict[str, int]:
    """Return the totals, computed in plain Python."""
    found: dict[str, int] = {}
    for user, amount in given_rows(count):
        found[user] = found.get(user, 0) + amount
    return found


def totals(store: str, at: str | None = None) -> dict[str, int]:
    found = rl.open(store).at(at).state("total").to_arrow().to_pylist()
    return {row["user"]: row["total"] for row in found}


def file(epoch: int, group: int) -> StateFile:
    return StateFile(
        path=f"state/{epoch}-{group}",
        first_epoch=epoch,
        last_epoch=epoch,
        first_group=group,
        end_group=group + 1,
        rows=1,
        bytes=1,
        checksum="",
    )


def of(epoch: int, files: list[StateFile]) -> Manifest:
    state = OperatorState(keys=KEYS, variables=VARIABLES, files=tuple(files))
    return msgspec.structs.replace(manifest(epoch), operators={"op": state})


def stored_lists(path: str) -> list[str]:
    return sorted(e.path for e in LocalStorage(Path(path)).list("regions/main/lists/"))


@pytest.mark.usefixtures("many")
@given(
    spans=st.lists(st.integers(1, 7), min_size=1, max_size=6),
    gone=st.sets(st.integers(0, 5)),
)
def test_what_is_stored_and_read_is_what_was_there(
    spans: list[int], gone: set[int]
) -> None:
    storage, before, live = MemoryStorage(), None, list[StateFile]()
    for epoch, size in enumerate(spans):
        live = [f for f in live if f.first_epoch not in gone or epoch % 2]
        live += [file(epoch, group) for group in range(size)]
        made, lists = listed(of(epoch, live), before, attempt=f"a{epoch}")
        for path, data in lists.items():
            assert storage.put_if_absent(path, data)
        stored = as_stored(made)
        assert whole(storage, stored) == made
        named = sum(e.files for e in stored.operators["op"].lists)
        assert named + len(stored.operators["op"].files) == len(live)
        before = made


@pytest.mark.usefixtures("many")
def test_an_epoch_writes_lists_of_its_own_files_only() -> None:
    first = [file(1, group) for group in range(5)]
    one, made = listed(of(1, first), None, attempt="a")
    assert len(made) == 3
    two, more = listed(of(2, [*first, file(2, 0)]), one, attempt="b")
    assert not more
    assert two.operators["op"].lists == one.operators["op"].lists
    # One of the five was merged with another: what is left of them is listed anew.
    three, anew = listed(of(3, [*first[:4], file(2, 0)]), two, attempt="c")
    assert len(anew) == 2
    assert not set(anew) & set(made)
    assert {e.path for e in three.operators["op"].lists} == set(anew)


def test_few_files_are_stored_as_ever(tmp_path: Path) -> None:
    store = str(tmp_path / "s")
    run(store, 100, parallelism=4)
    assert Catalog(LocalStorage(tmp_path / "s")).flow().features == ()
    assert stored_lists(store) == []
    raw = unsealed(next((tmp_path / "s").glob("regions/main/epochs/*.json")))
    assert "lists" not in raw["operators"]["total"]


@pytest.mark.usefixtures("many")
def test_a_flow_with_lists_gives_the_same(tmp_path: Path) -> None:
    store = str(tmp_path / "s")
    for parallelism, count in ((4, 100), (4, 220), (3, 300), (5, 460)):
        run(store, count, parallelism=parallelism)
        assert totals(store) == expected(count)
    assert Catalog(LocalStorage(tmp_path / "s")).flow().features == (LISTS_FEATURE,)
    raw = unsealed(sorted((tmp_path / "s").glob("regions/main/epochs/*.json"))[-1])
    assert raw["operators"]["total"]["lists"]
    mine = {
        row["key"]["user"]: row["value"]
        for row in read(tmp_path / "s", "total")["total"]
    }
    assert mine == expected(460)
    assert rl.stores.verify(store).is_whole


@pytest.mark.usefixtures("many")
def test_a_lost_working_copy_is_made_from_lists(tmp_path: Path) -> None:
    store, elsewhere = str(tmp_path / "s"), str(tmp_path / "w")
    run(store, 200, parallelism=4)
    run(store, 300, parallelism=4, working_dir=elsewhere)
    assert totals(store) == expected(300)


@pytest.mark.usefixtures("many")
def test_older_readers_refuse_a_store_with_lists(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(str(tmp_path / "s"), 60, parallelism=4)
    older = flow_file.FEATURES - {LISTS_FEATURE}
    monkeypatch.setattr("riverlock.snapshot.flow_file.FEATURES", older)
    with pytest.raises(UnsupportedFormatError):
        Catalog(LocalStorage(tmp_path / "s")).flow()


@pytest.mark.usefixtures("many")
@pytest.mark.parametrize("copy", [False, True])
def test_forks_have_lists_of_their_own(tmp_path: Path, *, copy: bool) -> None:
    store, new = str(tmp_path / "s"), str(tmp_path / "f")
    run(store, 200, parallelism=4)
    rl.stores.fork(store, new, copy=copy)
    assert stored_lists(new)
    assert LISTS_FEATURE in Catalog(LocalStorage(tmp_path / "f")).flow().features
    assert totals(new) == expected(200)
    run(new, 300, parallelism=4)
    assert totals(new) == expected(300)
    assert rl.stores.verify(new).is_whole


@pytest.mark.usefixtures("many")
def test_restore_diff_and_expire_know_lists(tmp_path: Path) -> None:
    store = str(tmp_path / "s")
    run(store, 200, parallelism=4)
    rl.stores.savepoint(store, "v1")
    run(store, 400, parallelism=4)
    changed = rl.stores.diff(f"{store}@v1", store)
    assert changed
    catalog = Catalog(LocalStorage(tmp_path / "s"))
    rl.stores.restore(f"{store}@v1")
    assert totals(store) == expected(200)
    rl.stores.expire(store, epochs=1, grace="0 s")
    assert totals(store, "v1") == expected(200)
    assert rl.stores.verify(store).is_whole
    named = {
        each.path
        for epoch in catalog.epochs()
        for each in references.file_lists(catalog.stored(epoch))
    }
    assert set(stored_lists(store)) == named


@pytest.mark.usefixtures("many")
def test_retention_deletes_lists_that_nothing_refers_to(tmp_path: Path) -> None:
    store = str(tmp_path / "s")
    run(store, 400, parallelism=4)
    catalog = Catalog(LocalStorage(tmp_path / "s"))
    before = set(stored_lists(store))
    leftover = f"{catalog.paths.lists}total/000000000001-of-a-dead-run.json"
    catalog.storage.put(leftover, b"{}")
    sweep(catalog, Retention(epochs=1, grace=timedelta(0)))
    left = set(stored_lists(store))
    assert left < before
    named = references.file_lists(catalog.stored(catalog.epochs()[-1]))
    assert left == {each.path for each in named}


@pytest.mark.usefixtures("many")
def test_a_damaged_list_is_told_and_repaired(tmp_path: Path) -> None:
    store = str(tmp_path / "s")
    run(store, 200, parallelism=4)
    catalog = Catalog(LocalStorage(tmp_path / "s"))
    newest, older = catalog.stored(catalog.epochs()[-1]), catalog.stored(2)
    known = {each.path for each in older.operators["total"].lists}
    lost = next(e for e in newest.operators["total"].lists if e.path not in known)
    catalog.storage.put(lost.path, b"nonsense")
    with pytest.raises(SnapshotCorruptedError, match="lists/total"):
        catalog.newest()
    found = rl.stores.verify(store)
    assert not found.is_whole
    assert lost.path in {damage.path for damage in found.damages}
    rl.stores.repair(store)
    run(store, 200, parallelism=4)
    assert totals(store) == expected(200)
    assert rl.stores.verify(store).is_whole


@pytest.mark.usefixtures("many")
def test_migrated_state_is_not_looked_for_in_older_lists(tmp_path: Path) -> None:
    class Renamed(rl.Process):
        output = "user string, total long"
        cents = rl.Value(
            "long", default=0, formerly="total", migrate=lambda total: total * 100
        )

        def on_event(self, record: Any, ctx: rl.Context) -> Any:
            self.cents += record.amount * 100
            yield record.user, self.cents

    # One epoch: files before and after are of the same epochs.
    store = str(tmp_path / "s")
    run(store, 20, parallelism=4)
    flow = rl.Flow("totals", key_groups=16)
    flow.read(rows(COLUMNS, given_rows(40), bounded=False), uid="in").key_by(
        "user"
    ).process(Renamed(), uid="total").write(rl.sinks.memory(), uid="out")
    flow.run(store, execution="local", available_now=True, parallelism=4)

    found = rl.open(store).state("total").to_arrow().to_pylist()
    assert {row["user"]: row["cents"] for row in found} == {
        user: 100 * total for user, total in expected(40).items()
    }
