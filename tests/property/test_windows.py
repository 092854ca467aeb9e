"""Windows by the column against a model that keeps every record."""

from __future__ import annotations

import io
from collections import Counter, defaultdict
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from riverlock.core.hidden_columns import GROUP, ROWS, SEQ, TIME, WINDOW
from riverlock.core.times import END_US
from riverlock.core.types import Schema, Type, schema_of
from riverlock.operators.aggregates.aggregator import Aggregator, NamedAggregator
from riverlock.operators.aggregates.partial import Merge, PartialAggregate
from riverlock.operators.base import Work
from riverlock.operators.effects import Effects
from riverlock.operators.running import run_operator
from riverlock.operators.shipped import MAIN, UPDATES, EpochInfo, OperatorProgram
from riverlock.operators.windows.window_aggregate import WindowAggregate
from riverlock.program.windows import TimeWindows
from riverlock.state.changelog import EntryLog
from riverlock.state.copy.memory import MemoryStore
from riverlock.state.copy.rebuilding import changes_of
from riverlock.state.keys import key_group
from riverlock.state.store import StateReader, Version

LONG, STRING = Type("long"), Type("string")
KEYS = schema_of("k string")
GROUPS = 4
DELAY = 15


class Sorted(Aggregator):
    """All values in order; looks at a struct, which users may give as a tuple."""

    acc = "struct<values:array<string>,size:bigint>"
    output = "string"

    def create(self) -> Any:
        return [], 0

    def add(self, acc: Any, record: Any) -> Any:
        return {"values": sorted([*acc.values, record.v]), "size": acc.size + 1}

    def merge(self, a: Any, b: Any) -> Any:
        return sorted(a.values + b.values), a.size + b.size

    def result(self, acc: Any) -> str:
        assert len(acc.values) == acc.size
        return "".join(acc.values)


SORTED = NamedAggregator("every", Sorted(), schema_of("v string"))
AGGREGATES = {
    "n": PartialAggregate(
        type=LONG, merges=(Merge(columns={"n": LONG}, how="sum"),), result="count"
    ),
    "most": PartialAggregate(
        type=STRING, merges=(Merge(columns={"most": STRING}, how="max"),), result="same"
    ),
    "every": PartialAggregate(
        type=STRING,
        merges=(Merge(columns={"every": SORTED.kept}, how=SORTED),),
        result=SORTED,
    ),
}
Record = tuple[str | None, int | None, str]
WINDOWS = st.builds(
    TimeWindows,
    size_us=st.sampled_from([10, 20, 30, 45]),
    slide_us=st.sampled_from([10, 20, 30]),
    offset_us=st.sampled_from([0, 7]),
)
RECORDS = st.tuples(
    st.sampled_from(["a", "b", "x" * 300, None]),
    # Multiples, so that times meet bounds.
    st.none() | st.integers(-6, 20).map(lambda n: n * 5) | st.integers(-30, 100),
    st.sampled_from("pqr"),
)
EPOCHS = st.lists(st.lists(RECORDS, min_size=1, max_size=6), min_size=1, max_size=8)


def program(window: TimeWindows, lateness: int, *, follows: bool) -> OperatorProgram:
    process = WindowAggregate(AGGREGATES, window, lateness).bound(KEYS, KEYS)
    assert isinstance(process, WindowAggregate)
    output = schema_of(process.output)
    return OperatorProgram(
        uid="w",
        process=process,
        keys=process.state_keys(KEYS),
        input=Schema(KEYS.fields),
        outputs={MAIN: output, UPDATES: output},
        follows_keyed=follows,
    )


def partial_rows(records: list[Record], window: TimeWindows) -> pa.Table:
    """Return what Spark makes of records: one row per key, pane and partition."""
    parts: dict[Any, list[Any]] = defaultdict(list)
    for place, (k, t, v) in enumerate(records):
        pane = None
        if t is not None:
            pane = t - (t - window.offset_us) % window.pane_us + window.pane_us
        parts[(k, pane, place % 2)].append((t, v))
    rows = list(parts.items())
    times = [max((t for t, _ in vs if t is not None), default=None) for _, vs in rows]
    return pa.table(
        {
            "k": pa.array([k for (k, _, _), _ in rows], "string"),
            WINDOW: pa.array([p for (_, p, _), _ in rows], "int64"),
            SEQ: pa.array([s for (_, _, s), _ in rows], "int64"),
            "n": pa.array([len(vs) for _, vs in rows], "int64"),
            "most": pa.array([max(v for _, v in vs) for _, vs in rows], "string"),
            "every": pa.array(
                [[{"v": v} for _, v in vs] for _, vs in rows],
                pa.list_(pa.struct([("v", pa.string())])),
            ),
            TIME: pa.array(times, "int64"),
            ROWS: pa.array([len(vs) for _, vs in rows], "int64"),
            GROUP: pa.array(
                [key_group((k,), KEYS, GROUPS) for (k, _, _), _ in rows], "int32"
            ),
        }
    )


def given_rows(effects: Effects, name: str) -> Counter[Any]:
    table = effects.outputs[name]
    ends = table["window_end"].cast(pa.int64()).to_pylist()
    starts = table["window_start"].cast(pa.int64()).to_pylist()
    assert table[TIME].to_pylist() == [e - 1 for e in ends]
    aggregates = [table[name].to_pylist() for name in AGGREGATES]
    return Counter(zip(table["k"].to_pylist(), starts, ends, *aggregates, strict=True))


class Engine:
    """The operator over a store that is rebuilt from its files beside it."""

    def __init__(
        self, window: TimeWindows, lateness: int, *, follows: bool = False
    ) -> None:
        self.window = window
        self.program = program(window, lateness, follows=follows)
        self.layout = self.program.layout()
        self.store, self.rebuilt = MemoryStore(), MemoryStore()
        self.previous: int | None = None
        self.entries = self.epochs = self.late = 0
        self.head: int | None = None

    def epoch(
        self, records: list[Record], watermark: int | None
    ) -> tuple[Counter[Any], Counter[Any]]:
        table = partial_rows(records, self.window) if records else None
        info = EpochInfo(
            epoch=self.epochs,
            now_us=0,
            seed=0,
            watermark_us=watermark,
            previous_us=self.previous,
        )
        with self.store.read() as reader:
            effects = self.run(reader, info, table)
        found = given_rows(effects, MAIN), given_rows(effects, UPDATES)
        self.head = effects.timers.event_us
        self._commit(effects.changes)
        self.late += effects.late
        self.epochs, self.previous = self.epochs + 1, watermark
        return found

    def run(
        self, reader: StateReader, info: EpochInfo, table: pa.Table | None
    ) -> Effects:
        return run_operator(
            Work(
                program=self.program,
                layout=self.layout,
                reader=reader,
                info=info,
                table=table,
                wanted=(MAIN, UPDATES),
            )
        )

    def _commit(self, log: EntryLog) -> None:
        version = Version(self.epochs, "t", "s")
        raw = io.BytesIO()
        pq.write_table(log.table(), raw)
        self.store.apply(log.redo().changes(), version)
        columns = changes_of(pq.read_table(io.BytesIO(raw.getvalue())), self.layout)
        self.rebuilt.apply(columns, version)
        self.entries += log.added
        content = list(self.store.scan(b""))
        assert content == list(self.rebuilt.scan(b""))
        assert self.entries == len(content)


class Model:
    """The same, with every record kept for ever."""

    def __init__(self, window: TimeWindows, lateness: int, *, follows: bool) -> None:
        self.window, self.lateness, self.follows = window, lateness, follows
        self.records: list[tuple[str | None, int, str]] = []
        self.previous = -(1 << 60)
        self.late = 0

    def ends(self, t: int) -> range:
        w = self.window
        first = t + 1 + (w.phase_us - t - 1) % w.slide_us
        return range(first, t + w.size_us + 1, w.slide_us)

    def epoch(
        self, records: list[Record], watermark: int | None
    ) -> tuple[Counter[Any], Counter[Any]]:
        # A window is over when its last instant is.
        reached = -(1 << 60) if watermark is None else watermark + 1
        # Rows of a keyed operator come before the watermark that made them.
        limit = self.previous if self.follows else reached
        touched = set()
        for k, t, v in records:
            ends = [] if t is None else list(self.ends(t))
            if t is None or (ends and ends[-1] + self.lateness <= limit):
                self.late += 1
                continue
            self.records.append((k, t, v))
            touched |= {(k, e) for e in ends if e + self.lateness > limit}
        every: dict[Any, list[str]] = defaultdict(list)
        for k, t, v in self.records:
            for end in self.ends(t):
                every[(k, end)].append(v)
        closing = {w for w in every if self.previous < w[1] <= reached}
        closing |= {w for w in touched if w[1] <= reached}
        self.previous = reached
        return self._rows(closing, every), self._rows(touched, every)

    def _rows(self, windows: set[Any], every: dict[Any, list[str]]) -> Counter[Any]:
        return Counter(
            (k, e - self.window.size_us, e, *of_all(every[(k, e)])) for k, e in windows
        )


def of_all(values: list[str]) -> tuple[Any, ...]:
    return len(values), max(values), "".join(sorted(values))


@settings(max_examples=200)
@given(WINDOWS, st.sampled_from([0, 10, 25]), EPOCHS, st.booleans())
def test_windows_are_those_of_the_model(
    window: TimeWindows, lateness: int, epochs: list[list[Record]], follows: bool
) -> None:
    engine = Engine(window, lateness, follows=follows)
    model = Model(window, lateness, follows=follows)
    watermark: int | None = None
    for records in [*epochs, []]:
        if not records:
            watermark = END_US
        assert engine.epoch(records, watermark) == model.epoch(records, watermark)
        if watermark == END_US:
            break
        due = [e for k, t, _ in model.records for e in model.ends(t)]
        reached = model.previous
        assert engine.head == min((e - 1 for e in due if e > reached), default=None)
        times = [t for _, t, _ in records if t is not None]
        if times:
            watermark = max(
                [max(times) - DELAY - 1, *([watermark] if watermark else [])]
            )
    assert engine.late == model.late


@given(
    WINDOWS,
    st.lists(RECORDS.filter(lambda r: r[1] is not None), min_size=1, max_size=30),
    st.randoms(use_true_random=False),
)
def test_splits_and_order_within_the_delay_make_no_difference(
    window: TimeWindows, records: list[Record], chance: Any
) -> None:
    def result(ordered: list[Record], sizes: list[int]) -> Counter[Any]:
        engine = Engine(window, 0)
        found: Counter[Any] = Counter()
        watermark: int | None = None
        newest = -(1 << 60)
        at = 0
        while at < len(ordered):
            size = sizes.pop() if sizes else len(ordered)
            part = ordered[at : at + size]
            at += size
            found += engine.epoch(part, watermark)[0]
            newest = max([newest, *(t for _, t, _ in part if t is not None)])
            watermark = newest - DELAY - 1
        found += engine.epoch([], END_US)[0]
        assert engine.late == 0
        assert list(engine.store.scan(b"")) == []
        return found

    in_order = sorted(records, key=lambda r: r[1] or 0)
    shuffled = sorted(records, key=lambda r: (r[1] or 0) + chance.randint(0, DELAY))
    sizes = [chance.randrange(1, 6) for _ in records]

    assert result(shuffled, sizes) == result(in_order, [])


@pytest.mark.parametrize("slide", [10, 5])
def test_a_window_that_ends_just_now_is_given(slide: int) -> None:
    engine = Engine(TimeWindows(size_us=10, slide_us=slide), 10)

    engine.epoch([("a", 25, "p")], None)

    given_now, _ = engine.epoch([("a", 5, "q")], 10)
    assert ("a", 0, 10, 1, "q", "q") in given_now


def test_a_sum_that_becomes_too_great_names_operator_and_column() -> None:
    from riverlock.core.errors import StateTypeError

    engine = Engine(TimeWindows(size_us=10, slide_us=10), 0)
    table = partial_rows([("a", 1, "p")], engine.window)
    great = pa.array([(1 << 63) - 1], "int64")
    table = table.set_column(table.column_names.index("n"), "n", great)
    info = EpochInfo(epoch=0, now_us=0, seed=0)
    twice = pa.concat_tables([table, table])
    with engine.store.read() as reader, pytest.raises(StateTypeError, match="'n'"):
        engine.run(reader, info, twice)
