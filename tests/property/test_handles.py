"""Handles against plain Python, over random operations split into random epochs."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from riverlock.core.types import schema_of
from riverlock.snapshot.format.state_files import encode_table, merge_tables
from riverlock.state.changelog import ChangeLog
from riverlock.state.copy.lmdb import LmdbStore
from riverlock.state.copy.memory import MemoryStore
from riverlock.state.copy.rebuilding import changes_of
from riverlock.state.handles import ListHandle, MapHandle, ValueHandle, Visit, bind
from riverlock.state.keys import key_bytes, with_group
from riverlock.state.layout import StateLayout
from riverlock.state.spec import List, Map, StateSpec, Value
from riverlock.state.store import Changes, Store, Version

KEYS = ["", "a", "ab", "x" * 600]
ITEM = st.lists(st.integers(-5, 5), max_size=3)
OPERATION = st.one_of(
    st.tuples(st.just("append"), ITEM),
    st.tuples(st.just("edit"), st.integers(0, 5)),
    st.tuples(st.just("keep"), st.integers(0, 4)),
    st.tuples(st.just("replace"), st.lists(ITEM, max_size=3)),
    st.tuples(st.just("empty"), st.none()),
    st.tuples(st.just("put"), st.tuples(st.integers(0, 4), ITEM)),
    st.tuples(st.just("remove"), st.integers(0, 4)),
    st.tuples(st.just("grow"), st.integers(0, 4)),
    st.tuples(st.just("wipe"), st.none()),
    st.tuples(st.just("become"), st.dictionaries(st.integers(0, 4), ITEM, max_size=3)),
    st.tuples(st.just("set"), st.none() | ITEM),
    st.tuples(st.just("mutate"), st.none()),
)
EPOCHS = st.lists(
    st.lists(st.tuples(st.sampled_from(KEYS), st.lists(OPERATION, max_size=4))),
    max_size=5,
)


def layout() -> StateLayout:
    specs: dict[str, StateSpec] = {
        "items": List("array<long>"),
        "seen": Map("long", "array<long>"),
        "one": Value("array<long>", ttl="1 day"),
    }
    for name, spec in specs.items():
        spec.__set_name__(object, name)
    return StateLayout(schema_of("k string"), specs)


class Model:
    def __init__(self) -> None:
        self.items: list[Any] = []
        self.seen: dict[int, Any] = {}
        self.one: list[int] | None = None


def on_model(m: Model, name: str, arg: Any) -> None:  # noqa: C901 - a table
    match name:
        case "append":
            m.items.append(list(arg))
        case "edit" if arg < len(m.items):
            m.items[arg].append(9)
        case "keep":
            m.items = m.items[arg:]
        case "replace":
            m.items = [list(i) for i in arg]
        case "empty":
            m.items = []
        case "put":
            m.seen[arg[0]] = list(arg[1])
        case "remove":
            m.seen.pop(arg, None)
        case "grow":
            m.seen.setdefault(arg, []).append(7)
        case "wipe":
            m.seen = {}
        case "become":
            m.seen = {k: list(v) for k, v in arg.items()}
        case "set":
            m.one = None if arg is None else list(arg)
        case "mutate" if m.one is not None:
            m.one.append(1)


def on_handles(  # noqa: C901 - the same table
    items: ListHandle[Any], seen: MapHandle[Any], one: ValueHandle, name: str, arg: Any
) -> None:
    match name:
        case "append":
            items.append(arg)
        case "edit" if arg < len(items):
            items[arg].append(9)
        case "keep":
            items.replace(items[arg:])
        case "replace":
            items.replace(arg)
        case "empty":
            items.clear()
        case "put":
            seen[arg[0]] = arg[1]
        case "remove":
            seen.pop(arg, None)
        case "grow":
            seen.setdefault(arg, []).append(7)
        case "wipe":
            seen.clear()
        case "become":
            seen.replace(arg)
        case "set":
            one.set(arg)
        case "mutate" if one.get() is not None:
            one.get().append(1)


def content(store: Store) -> list[tuple[bytes, bytes]]:
    with store.read() as reader:
        return list(reader.scan(b""))


def run(epochs: Any, store: Store) -> None:
    plan = layout()
    models = {k: Model() for k in KEYS}
    tables = []
    for number, turns in enumerate(epochs):
        log = ChangeLog(plan, "op")
        by_key: dict[str, list[Any]] = {}
        for key, operations in turns:
            by_key.setdefault(key, []).extend(operations)
        with store.read() as reader:
            visit = Visit("op", reader, log, now_us=number)
            items, seen, one = (bind(s, visit) for s in plan.specs.values())
            assert isinstance(items, ListHandle)
            assert isinstance(seen, MapHandle)
            assert isinstance(one, ValueHandle)
            for key, operations in by_key.items():
                visit.at = (with_group(1, key_bytes((key,))), 1, (key,))
                model = models[key]
                for name, arg in operations:
                    on_model(model, name, arg)
                    on_handles(items, seen, one, name, arg)
                    assert list(items) == model.items
                    assert dict(seen) == model.seen
                    assert one.get() == model.one
                    assert (len(items), len(seen)) == (
                        len(model.items),
                        len(model.seen),
                    )
                visit.flush()
        raw = encode_table(log.table())
        tables.append(pq.read_table(pa.BufferReader(raw)))
        store.apply(log.redo().changes(), Version(number, "t", plan.digest))
    check(store, plan, models, tables)


def check(
    store: Store, plan: StateLayout, models: dict[str, Model], tables: list[pa.Table]
) -> None:
    step_by_step, at_once = MemoryStore(), MemoryStore()
    version = Version(0, "t", plan.digest)
    for table in tables:
        step_by_step.apply(changes_of(table, plan), version)
    if tables:
        at_once.apply(changes_of(merge_tables(tables), plan), version)
    assert content(step_by_step) == content(store)
    assert content(at_once) == content(store)
    with store.read() as reader:
        visit = Visit("op", reader, ChangeLog(plan, "op"), now_us=99)
        handles = [bind(s, visit) for s in plan.specs.values()]
        for key, model in models.items():
            visit.at = (with_group(1, key_bytes((key,))), 1, (key,))
            assert isinstance(handles[0], ListHandle)
            assert isinstance(handles[1], MapHandle)
            assert isinstance(handles[2], ValueHandle)
            assert list(handles[0]) == model.items
            assert dict(handles[1]) == model.seen
            assert handles[2].get() == model.one
            visit.flush()


@given(EPOCHS)
def test_handles_over_memory_behave_as_plain_python(epochs: Any) -> None:
    run(epochs, MemoryStore())


@given(EPOCHS)
@settings(max_examples=20)
def test_handles_over_lmdb_behave_as_plain_python(epochs: Any) -> None:
    with tempfile.TemporaryDirectory() as directory:
        store = LmdbStore(Path(directory) / "copy")
        run(epochs, store)
        store.close()


@given(st.lists(OPERATION, max_size=4), st.lists(OPERATION, max_size=4))
def test_rewound_handles_are_as_they_were(first: Any, second: Any) -> None:
    plan, store = layout(), MemoryStore()
    log = ChangeLog(plan, "op")
    visit = Visit("op", store, log, now_us=0)
    items, seen, one = (bind(s, visit) for s in plan.specs.values())
    assert isinstance(items, ListHandle)
    assert isinstance(seen, MapHandle)
    assert isinstance(one, ValueHandle)
    visit.at = (with_group(1, key_bytes(("k",))), 1, ("k",))
    model = Model()
    for name, arg in first:
        on_model(model, name, arg)
        on_handles(items, seen, one, name, arg)

    saved = visit.save()
    for name, arg in second:
        on_handles(items, seen, one, name, arg)
    visit.rewind(saved)

    assert (list(items), dict(seen), one.get()) == (model.items, model.seen, model.one)
    visit.flush()
    log.table()


@pytest.mark.parametrize("kind", ["memory", "lmdb"])
def test_last_and_scan_agree(kind: str, tmp_path: Path) -> None:
    store: Store = MemoryStore() if kind == "memory" else LmdbStore(tmp_path / "copy")
    changes = Changes.empty()
    # Ids begin with the two bytes of their key group.
    changes.puts |= {
        b"\0\1a\x01": b"1",
        b"\0\1a\x02": b"2",
        b"\0\1b": b"3",
        b"\xff\xff": b"4",
    }
    store.apply(changes, Version(1, "t", "s"))

    with store.read() as reader:
        assert reader.last(b"\0\1a") == b"\0\1a\x02"
        assert reader.last(b"\0\1b") == b"\0\1b"
        assert reader.last(b"\0\1c") is None
        assert reader.last(b"\xff\xff") == b"\xff\xff"
        assert [i for i, _ in reader.scan(b"\0\1a")] == [b"\0\1a\x01", b"\0\1a\x02"]
