"""Output and state do not depend on how the input is cut, shuffled and spread."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from riverlock.core.hidden_columns import GROUP, SEQ
from riverlock.core.types import schema_of
from riverlock.operators.base import Work
from riverlock.operators.keyed.execution import Execution
from riverlock.operators.shipped import MAIN, EpochInfo, OperatorProgram
from riverlock.operators.task_input import keyed_input
from riverlock.program.process import Process, SideOutput
from riverlock.state.copy.memory import MemoryStore
from riverlock.state.keys import group_range, key_group, list_slot
from riverlock.state.spec import List, Map, Reducing, Value
from riverlock.state.store import Version

GROUPS = 16
INPUT = schema_of("k string, n long, v long")
KEYS = schema_of("k string, n long")


class Busy(Process):
    """Uses every kind of state in a way that order matters."""

    output = "k string, n long, total double, items array<long>, seen map<long,long>"
    total = Value("double", default=1)
    ratio = Value("float", default=0)
    items = Value("array<long>", default=[])
    recent = List("long")
    seen = Map("long", "long")
    best = Reducing("long", lambda a, b: (a * 31 + b) % 1_000)
    last = Value("struct<v:long,f:float>")
    odd = SideOutput("k string, v long")

    def on_event(self, record: Any, ctx: Any) -> Iterator[Any]:
        v = record.v
        if v is None:
            self.total = None
            self.items = ()
            self.recent.clear()
            return
        self.total = self.total * 2 + v
        self.ratio += 0.1 * v
        self.items.append(v)
        self.recent.append(v)
        if len(self.recent) > 3:
            self.recent = self.recent[1:]
        self.seen[v % 4] = self.seen.get(v % 4, 0) + 1
        if v % 5 == 0:
            self.seen.pop(1, None)
        self.best.add(v)
        if self.last is not None and self.last.v == v:
            ctx.emit(self.odd, (record.k, v))
            del self.last
        else:
            self.last = {"v": v, "f": self.ratio / 3}
        yield *ctx.key, self.total + self.ratio, [*self.items, *self.recent], self.seen


PROGRAM = OperatorProgram(
    uid="busy",
    process=Busy(),
    keys=KEYS,
    input=INPUT,
    outputs={MAIN: schema_of(Busy.output), "odd": schema_of("k string, v long")},
)
LAYOUT = PROGRAM.layout()
Row = tuple[int, tuple[Any, ...]]  # position, record


def run(epochs: list[list[Row]], parallelism: int) -> Any:
    """Run epochs over tasks; returns rows per key in order, side rows and state."""
    stores = [MemoryStore() for _ in range(parallelism)]
    rows: dict[Any, list[Any]] = {}
    odd: list[Any] = []
    for number, epoch in enumerate(epochs):
        info = EpochInfo(epoch=number, now_us=0, seed=0)
        for task, store in enumerate(stores):
            first, end = group_range(task, parallelism, GROUPS)
            mine = [
                (seq, r, g)
                for seq, r in epoch
                if first <= (g := key_group(r[:2], KEYS, GROUPS)) < end
            ]
            execution = one_task(mine, store, info)
            for row, _ in execution.emitted[MAIN]:
                rows.setdefault(row[:2], []).append(row)
            odd += [r for r, _ in execution.emitted["odd"]]
            execution.log.table()
            store.apply(execution.log.redo().changes(), Version(number, "t", ""))
    return rows, sorted(odd, key=repr), state_of(stores)


def state_of(stores: list[MemoryStore]) -> Any:
    """Return all entries; the indexes of a list only say in which order they are."""
    slot = list_slot("recent")
    entries: list[Any] = []
    lists: list[Any] = []
    for entry_id, payload in sorted(p for s in stores for p in s.scan(b"")):
        is_element = entry_id[:-8].endswith(slot)
        (lists if is_element else entries).append(
            (entry_id[:-8] if is_element else entry_id, payload)
        )
    return entries, lists


def one_task(mine: list[Any], store: MemoryStore, info: EpochInfo) -> Execution:
    with store.read() as reader:
        work = Work(
            program=PROGRAM,
            layout=LAYOUT,
            reader=reader,
            info=info,
            table=None,
            wanted=(),
        )
        execution = Execution(work)
        data = None
        if mine:
            columns = list(zip(*(r for _, r, _ in mine), strict=True))
            arrays = [pa.array(c, f.type) for c, f in zip(columns, ARROW, strict=True)]
            table = pa.table(arrays, schema=ARROW)
            table = table.append_column(SEQ, pa.array([s for s, _, _ in mine]))
            table = table.append_column(GROUP, pa.array([g for _, _, g in mine]))
            data = keyed_input(table, PROGRAM)
            data.payloads = reader.get_many(data.ids)
        execution.run(data)
    return execution


ARROW = INPUT.to_arrow()
RECORDS = st.lists(
    st.tuples(
        st.sampled_from([None, "", "a", "é", "x" * 300]),
        st.sampled_from([None, 0, -1]),
        st.none() | st.integers(0, 9),
    ),
    max_size=30,
)


@st.composite
def runs(draw: st.DrawFn) -> tuple[list[Row], list[list[Row]], int]:
    """A whole input, the same one cut and shuffled within the cuts, and tasks."""
    whole = list(enumerate(draw(RECORDS)))
    cuts = sorted(draw(st.lists(st.integers(0, len(whole)), max_size=4)))
    edges = [0, *cuts, len(whole)]
    pieces = [whole[a:b] for a, b in pairwise(edges)]
    shuffled = [draw(st.permutations(p)) for p in pieces]
    return whole, shuffled, draw(st.integers(1, 20))


@given(runs())
@settings(max_examples=60)
def test_result_depends_on_nothing_but_the_input(
    case: tuple[list[Row], list[list[Row]], int],
) -> None:
    whole, pieces, parallelism = case

    assert run(pieces, parallelism) == run([whole], 1)
