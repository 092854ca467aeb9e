"""A look-up reads what can hold the key, and verifies what it reads."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from tests.unit.query.large import Counting, make_large, table

import riverlock as rl
from riverlock.core.errors import SnapshotCorruptedError
from riverlock.query.opened_store import Store
from riverlock.snapshot.catalog import Catalog
from riverlock.snapshot.format import parts, state_files
from riverlock.snapshot.format.records import StateFile
from riverlock.snapshot.verbs.verify import verify
from riverlock.storage import LocalStorage

KEYS, PER_PART, PIECES = 20_000, 128, 2
ABSENT = KEYS * 7919 + 1


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Catalog:
    """Many keys, then an epoch that changes two and deletes one."""
    with pytest.MonkeyPatch.context() as patch:
        _small_parts(patch)
        first: dict[int, int | None] = {n * 7919: n for n in range(KEYS)}
        second: dict[int, int | None] = {0: -1, 7919: None, 2 * 7919: -2}
        root = tmp_path_factory.mktemp("large") / "store"
        return make_large(root, [first, second], PIECES)


def _small_parts(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(parts, "ROWS_PER_PART", PER_PART)
    patch.setattr(state_files, "ROWS_PER_PART", PER_PART)
    patch.setattr(parts, "_FOOTER_ROWS", 1)


def _files(catalog: Catalog) -> tuple[StateFile, ...]:
    return catalog.resolve(None).operators["op"].files


@pytest.mark.parametrize(
    ("key", "expected"),
    [(5 * 7919, [5]), (0, [-1]), (7919, []), (2 * 7919, [-2]), (ABSENT, [])],
)
def test_look_up_reads_a_small_part_of_the_bytes(
    large: Catalog, key: int, expected: list[int]
) -> None:
    storage = large.storage
    assert isinstance(storage, Counting)
    storage.read.clear()

    rows = Store(large).state("op").get(key)

    assert [r["n"] for r in rows] == expected
    whole = sum(f.bytes for f in _files(large))
    # One footer, at most one part, and the small file of the second epoch.
    assert len({path for path, _ in storage.read}) == 2
    assert len(storage.read) <= 3
    assert sum(size for _, size in storage.read) < whole / 5


def test_look_ups_agree_with_the_whole(large: Catalog) -> None:
    found = Store(large).state("op", at=0)
    whole = {r["k"]: r["n"] for r in found}

    assert len(whole) == KEYS
    for n in range(0, KEYS, 997):
        assert found.get(n * 7919) == [{"k": n * 7919, "n": n}]


def test_look_ups_in_a_fork_read_the_files_of_its_parent(
    large: Catalog, tmp_path: Path
) -> None:
    new = tmp_path / "fork"
    rl.stores.fork(large.storage.uri, str(new))

    assert rl.open(str(new)).state("op").get(5 * 7919) == [{"k": 5 * 7919, "n": 5}]


def test_slices_of_key_groups_make_up_the_whole(
    large: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    relation = Store(large).state("op")
    whole = relation.to_arrow()

    monkeypatch.setattr("riverlock.query.relation._ROWS_PER_SLICE", 3_000)

    assert len(relation.spans()) == 7
    assert relation.to_arrow().equals(whole)
    halves = [relation.within(0, 50), relation.within(50, 128)]
    assert sum(r.to_arrow().num_rows for r in halves) == whole.num_rows


def _flipped(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize("groups", [(0, 43), (43, 86), (86, 128), (5, 6)])
def test_new_owners_of_key_groups_read_only_what_is_theirs(
    large: Catalog, groups: tuple[int, int]
) -> None:
    storage = large.storage
    assert isinstance(storage, Counting)
    state = _files(large)
    whole = [
        row for f in state for row in state_files.read_table(storage, f).to_pylist()
    ]
    storage.read.clear()

    mine = [
        row
        for file in state
        if file.first_group < groups[1] and groups[0] < file.end_group
        for row in state_files.read_table(storage, file, groups).to_pylist()
    ]

    assert mine == [r for r in whole if groups[0] <= r["key_group"] < groups[1]]
    share = (groups[1] - groups[0]) / 128
    footers = sum(0 if f.footer is None else f.footer.bytes for f in state)
    read = sum(size for _, size in storage.read)
    # Parts do not end where key groups do: one more on either side.
    assert read < (share + 0.05) * sum(f.bytes for f in state) + footers


@pytest.mark.parametrize("groups", [(0, 43), (43, 86), (86, 128), (0, 128)])
def test_everyone_reads_what_everyone_shares(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, groups: tuple[int, int]
) -> None:
    _small_parts(monkeypatch)
    storage = LocalStorage(tmp_path)
    mine = table((n, n) for n in range(1_000))
    shared = {"id": b"\xff\xff\xc1\x00", "entry": "values", "deleted": False}
    everyones = pa.Table.from_pylist([shared | {"data": {"n": -1}}], mine.schema)
    whole = pa.concat_tables([mine, everyones])

    file = state_files.write_state_file(
        storage, "f.parquet", whole, epochs=(0, 0), groups=(0, 128)
    )

    assert file.footer is not None
    found = state_files.read_table(storage, file, groups)
    assert found.to_pylist() == [
        row
        for row in whole.to_pylist()
        if row["key_group"] is None or groups[0] <= row["key_group"] < groups[1]
    ]


@pytest.mark.parametrize("where", ["part", "footer"])
def test_look_up_notices_damage_in_what_it_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    _small_parts(monkeypatch)
    catalog = make_large(tmp_path / "store", [{n: n for n in range(1_000)}], 1)
    (file,) = _files(catalog)
    assert file.footer is not None
    relation = Store(catalog).state("op")
    keys = sorted(relation, key=lambda r: int(r["n"]))
    assert len(keys) == 1_000

    path = tmp_path / "store" / file.path
    _flipped(path, 100 if where == "part" else file.bytes - file.footer.bytes + 100)

    broken = 0
    for n in range(0, 1_000, 50):
        try:
            assert relation.get(n) == [{"k": n, "n": n}]
        except SnapshotCorruptedError:
            broken += 1
    # A part holds an eighth of the keys; without the footer nothing can be read.
    assert broken == 20 if where == "footer" else 0 < broken < 20
    assert [r.is_whole for r in verify(catalog)] == [False]
    with pytest.raises(SnapshotCorruptedError):
        relation.to_arrow()
