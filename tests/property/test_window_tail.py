"""Windows that wait beside LMDB, come and go: all readers see what one dict has."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from riverlock.state.copy.layers import DELETED, Layer
from riverlock.state.copy.lmdb import LmdbStore
from riverlock.state.copy.memory import MemoryStore
from riverlock.state.copy.redo import Redo
from riverlock.state.copy.tail import Tail, TailReader
from riverlock.state.keys import ordinal_bytes
from riverlock.state.store import Changes, Version

Entry = tuple[int, int, int]
ENTRIES = st.tuples(st.integers(0, 2), st.integers(1, 9), st.integers(0, 3))
# What an epoch writes, how far windows are closed by it, and whether all goes to LMDB.
EPOCHS = st.lists(
    st.tuples(
        st.dictionaries(ENTRIES, st.binary(min_size=1, max_size=2), max_size=8),
        st.integers(0, 3),
        st.booleans(),
    ),
    min_size=1,
    max_size=9,
)


def name(entry: Entry) -> bytes:
    group, end, key = entry
    return group.to_bytes(2) + ordinal_bytes(end) + bytes([key])


ASKED = [name((g, e, k)) for g in range(3) for e in range(1, 10) for k in range(4)]


@settings(max_examples=25)
@given(EPOCHS)
def test_windows_in_the_tail_are_those_of_one_store(
    epochs: list[tuple[dict[Entry, bytes], int, bool]],
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        store, model = LmdbStore(Path(folder, "lmdb")), MemoryStore()
        tail, closed = Tail(Path(folder, "tail")), 0
        version = Version(0, "t", "s")
        store.apply(Changes.empty(), version)
        for number, (rows, closing, goes_down) in enumerate(epochs, 1):
            tail.follow(version, number, lambda _: "t")
            version = Version(number, "t", "s")
            closed = max(closed, min(closing + number - 2, 9))
            puts = {name(e): row for e, row in rows.items() if e[1] > closed}
            gone = model.span(None, closed)[0].to_pylist()
            changes = Changes(puts, gone, [], [])

            tail.add(Redo.of(changes), version, None)
            model.apply(changes, version)
            if goes_down:
                store.apply(tail.changes(), version)
                tail.clear()
            else:
                version = store.version() or version

            with store.read() as below:
                check(TailReader(below, tail), model, closed)
        store.close()


def check(reader: TailReader, model: MemoryStore, closed: int) -> None:
    ids = pa.array(ASKED, pa.binary())
    for _ in range(2):  # what the first time learned must not change the second
        for span in ((None, closed), (None, 9), (closed, 9), (3, 6)):
            assert as_lists(reader.span(*span)) == as_lists(model.span(*span))
        assert reader.get_ordered(ids).to_pylist() == model.get_many(ASKED)
        for after in range(closed, 10):
            assert reader.first_ordinal(after) == model.first_ordinal(after)
        last = model.last_ordinal()
        assert last is None or (reader.last_ordinal() or 0) >= last


def as_lists(rows: tuple[pa.BinaryArray, pa.BinaryArray]) -> list[list[bytes]]:
    return [column.to_pylist() for column in rows]


def test_what_comes_and_goes_in_the_tail_leaves_nothing_to_write() -> None:
    first, second = name((0, 5, 1)), name((0, 6, 1))
    with tempfile.TemporaryDirectory() as folder:
        store, tail = LmdbStore(Path(folder, "lmdb")), Tail(Path(folder, "tail"))
        version = Version(0, "t", "s")
        store.apply(Changes({first: b"old"}, [], [], []), version)
        tail.follow(version, 1, lambda _: "t")
        with store.read() as below:
            tail.settle(below)
        for rows in ({first: b"a", second: b"b"}, {first: DELETED, second: DELETED}):
            tail.layers.push(Layer.of(list(rows), list(rows.values())))

        assert tail.changes() == Changes({}, [first], [], [])
        store.close()
