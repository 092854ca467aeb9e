"""Queries over streams: neither splits nor the order within the delay matter.

Spark translates the queries, and computes once what each row by itself is to their
operators. These then run without it, over the rows in any order and in epochs of any
size, and must give what the same query over a table does.
"""

from __future__ import annotations

import random
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from tests.integration.sql_queries import (
    ROWS,
    comparable,
    events,
    table,
    views,
)
from tests.interpreted import interpreted
from tests.property.prepared import PreparedOperator

import riverlock as rl
from riverlock.core.hidden_columns import ALL, GROUP, SEQ
from riverlock.core.times import END_US
from riverlock.driver.run_options import RunOptions
from riverlock.driver.starting.source_readers import readers_of
from riverlock.engines.jobs.engine import JobsEngine
from riverlock.engines.jobs.frames.nodes import Frames
from riverlock.engines.jobs.frames.session_gaps import with_gap
from riverlock.flow.inside import program_of
from riverlock.program.unkeyed import ALL_RECORDS
from riverlock.snapshot.format.records import InputRange
from riverlock.stages.compiled import CompiledFlow, KeyedStage
from riverlock.stages.planning import compile_flow
from riverlock.storage import LocalStorage

pytestmark = pytest.mark.spark

DELAY_US = 10_000_000
ROW = "row_number"
# One of each kind of operator; their columns are those of the operator, in its order.
QUERIES = {
    "tumbling": """SELECT user % 2 AS half, window.start, window.end,
        count(DISTINCT action) AS actions, sum(amount) FILTER (WHERE amount > 0) AS up
        FROM events GROUP BY half, window(at, '20 seconds')""",
    "sliding": """SELECT window.start, window.end, count(*) AS n, max(action) AS most,
        median(amount) AS middle
        FROM events WHERE amount > -400
        GROUP BY window(at, '1 minute', '20 seconds', '-7 seconds')""",
    "sessions": """SELECT action, user, session_window.start, session_window.end,
        count(*) AS n, min(amount) AS least FROM events
        GROUP BY action, user, session_window(at, CASE WHEN amount > 0 THEN '30 seconds'
          WHEN amount < -400 THEN NULL ELSE '3 seconds' END)""",
    "running": """SELECT lower(action) AS what, count(*) AS n, sum(amount) AS total
        FROM events GROUP BY lower(action)""",
}
# Rows without a gap are in no session: they count as late, whenever they come.
WITHOUT_SESSION = "amount < -400"


@dataclass(frozen=True)
class Operator:
    """An operator, and what each row is to it, in order of the rows."""

    stage: KeyedStage
    prepared: pa.Table
    # Where what came of each row is.
    places: dict[int, int]
    expected: Counter[Any]
    late_rows: int

    def of_rows(self, numbers: list[int]) -> pa.Table:
        """Return the input of an epoch, in the order of arrival."""
        places = [self.places[n] for n in numbers if n in self.places]
        taken = self.prepared.take(pa.array(places, pa.int64()))
        order = pa.array(range(len(places)), pa.int64())
        return taken.set_column(taken.column_names.index(SEQ), SEQ, order)

    def result(self, rows: list[Any]) -> Counter[Any]:
        """Return the rows that were given; of a running aggregate the last of keys."""
        plain = [comparable(row) for row in rows]
        if self.stage.node.windows is None:
            width = len(self.stage.node.keys)
            return Counter({row[:width]: row for row in plain}.values())
        return Counter(plain)


@dataclass(frozen=True)
class World:
    """The operators of all queries, and the times of the rows."""

    operators: dict[str, Operator]
    times_us: list[int]

    def check(self, order: list[int], ends: list[int]) -> None:
        """Run rows in an order, in epochs that end there; all give what batches do."""
        for name, each in self.operators.items():
            played = PreparedOperator(each.stage.program)
            newest: int | None = None
            for begin, end in pairwise(ends):
                reached = None if newest is None else newest - DELAY_US - 1
                played.play(each.of_rows(order[begin:end]), reached)
                newest = max((self.times_us[n] for n in order[:end]), default=None)
            played.play(each.of_rows([]), END_US)

            assert each.result(played.output) == each.expected, name
            assert played.late_rows == each.late_rows, name


def translated(spark: SparkSession, folder: Path) -> tuple[CompiledFlow, Frames]:
    """Return the operators of all queries, and frames of all rows."""
    flow = rl.Flow("splits")
    events(flow)
    for name, query in QUERIES.items():
        flow.sql(query, uid=name).write(rl.sinks.memory(), uid=f"{name}-out")
    engine = JobsEngine(RunOptions(spark=spark))
    engine.open()
    with ExitStack() as stack:
        stack.callback(engine.close)
        program = program_of(flow)
        readers = readers_of(program, engine, LocalStorage(folder), stack)
        compiled = compile_flow(program, readers, engine.analysis(program, readers))
    whole = InputRange(start={"row": 0}, end={"row": ROWS})
    ranges = {"events": whole}
    return compiled, Frames(spark, readers, ranges, compiled.event_times, {})


def prepared(stage: KeyedStage, frames: Frames) -> tuple[pa.Table, dict[int, int]]:
    """Let Spark compute what each row by itself is to an operator."""
    assert stage.combine is not None
    frame = with_gap(frames.frame(stage.node.input), stage.node)
    single = replace(stage.combine, keys=(*stage.combine.keys, ROW))
    made = single.apply(frame.withColumn(ROW, F.col(SEQ))).toArrow()
    if stage.program.keys == ALL_RECORDS:
        made = made.append_column(ALL, pa.nulls(len(made), pa.bool_()))
    made = made.append_column(GROUP, pa.array([0] * len(made), pa.int32()))
    numbers = made[ROW].to_pylist()
    return made.drop_columns([ROW]), {n: place for place, n in enumerate(numbers)}


@pytest.fixture(scope="module")
def world(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> World:
    with views(spark), interpreted(spark):
        compiled, frames = translated(spark, tmp_path_factory.mktemp("splits"))
        stages = {s.id: s for s in compiled.stages if isinstance(s, KeyedStage)}
        rows = table(spark)
        times = rows.select(F.unix_micros("at").alias("t"), F.expr(WITHOUT_SESSION))
        times_us, are_without = zip(*times.collect(), strict=True)
        operators = {}
        for name, query in QUERIES.items():
            batch = Counter(map(comparable, spark.sql(query).collect()))
            assert batch
            late = sum(are_without) if name == "sessions" else 0
            made = prepared(stages[name], frames)
            operators[name] = Operator(stages[name], *made, batch, late)
    assert sum(are_without) > 0
    return World(operators, list(times_us))


def test_a_hundred_epochs_give_the_rows_of_a_batch(world: World) -> None:
    world.check(list(range(ROWS)), list(range(0, ROWS + 1, ROWS // 100)))


@settings(max_examples=5)
@given(st.integers(1, 60), st.randoms(use_true_random=False))
def test_random_epochs_of_shuffled_rows_give_the_rows_of_a_batch(
    world: World, epochs: int, chance: random.Random
) -> None:
    arrival = [at + chance.randint(0, DELAY_US) for at in world.times_us]
    order = sorted(range(ROWS), key=arrival.__getitem__)

    inner = chance.sample(range(1, ROWS), epochs - 1)
    world.check(order, sorted([0, *inner, ROWS]))
