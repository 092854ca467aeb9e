"""Aggregators as running aggregates, and what happens when they fail."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.property.arrivals import cuts

import riverlock as rl
from riverlock.core.errors import InvalidFlowError, UserCodeError
from riverlock.core.types import schema_of, type_of
from riverlock.operators.aggregates.aggregate import Aggregate
from riverlock.operators.aggregates.aggregator import Aggregator, NamedAggregator
from riverlock.operators.aggregates.partial import (
    Merge,
    PartialAggregate,
    finisher,
    merger,
)
from riverlock.state.codec import codec_of
from riverlock.testing import harness
from riverlock.testing.harness import Harness


class Sum(Aggregator):
    """A sum that refuses thirteen, wherever it meets it."""

    acc = "bigint"
    output = "double"

    def __init__(self, bad: str = "") -> None:
        self.bad = bad

    def create(self) -> int:
        return 0

    def add(self, acc: int, record: Any) -> int:
        return self.sum("add", acc, record.v)

    def merge(self, a: int, b: int) -> int:
        return self.sum("merge", a, b)

    def result(self, acc: int) -> float:
        return self.sum("result", acc, 0) / 2

    def sum(self, where: str, a: int, b: int) -> int:
        if self.bad == where and a + b == 13:
            raise ArithmeticError("thirteen")
        return a + b


def running(aggregator: Aggregator) -> Harness:
    named = NamedAggregator("total", aggregator, schema_of("v bigint"))
    merges = (Merge(columns={"total": named.kept}, how=named),)
    half = PartialAggregate(type=named.output, merges=merges, result=named)
    columns = schema_of("k string, total array<struct<v:bigint>>")
    process = Aggregate({"total": half}).bound(schema_of("k string"), columns)
    return harness(process, key="k", input=columns, uid="totals")


def partial(key: str, *values: int) -> Any:
    """Return a row as Spark makes it: the records of a key in one partition."""
    return key, [{"v": v} for v in values]


@settings(max_examples=40)
@given(
    st.lists(
        st.tuples(st.sampled_from("ab"), st.lists(st.integers(-9, 9), max_size=4)),
        max_size=12,
    ).flatmap(lambda rows: st.tuples(st.just(rows), cuts(len(rows))))
)
def test_running_aggregates_do_not_depend_on_splits(drawn: Any) -> None:
    rows, ends = drawn
    h = running(Sum())

    for begin, end in pairwise(ends):
        h.send(*(partial(k, *values) for k, values in rows[begin:end]))

    wanted: dict[str, int] = {}
    for k, values in rows:
        wanted[k] = wanted.get(k, 0) + sum(values)
    assert dict(h.output) == {k: total / 2 for k, total in wanted.items()}


@pytest.mark.parametrize("method", ["add", "merge", "result"])
def test_what_an_aggregator_raises_names_operator_key_and_line(method: str) -> None:
    h = running(Sum(method))
    h.send(partial("a", 6, 6))

    with pytest.raises(UserCodeError) as caught:
        h.send(partial("b", 13), partial("a", 1))

    error = caught.value
    assert error.operator == "totals"
    assert f"{method} of aggregate 'total'" in str(error)
    assert error.key == ("b" if method == "add" else "a")
    assert "thirteen" in str(error)
    assert "in sum: raise ArithmeticError" in str(error)
    # Nothing of the epoch has happened, and no sink would have taken the record.
    assert h.state("total", key="a") == 12
    assert "agg has no dead letters" in error.hint


def test_a_sink_for_dead_letters_of_agg_is_refused() -> None:
    flow = rl.Flow("dead", on_error=rl.sinks.memory())
    source = rl.sources.files("in", format="json", schema="k string, v long")
    keyed = flow.read(source).key_by("k")

    with pytest.raises(InvalidFlowError, match="agg has no dead letters"):
        keyed.agg(total=Sum(), on_error=rl.sinks.memory())


def test_accumulators_of_another_type_are_refused() -> None:
    class Odd(Sum):
        def create(self) -> Any:
            return "text"

    with pytest.raises(UserCodeError, match="create of aggregate 'total'"):
        running(Odd()).send(partial("a", 1))


def test_aggregators_that_are_not_whole_are_refused_at_once() -> None:
    class NoMerge(Aggregator):
        acc = output = "bigint"

        def create(self) -> int:
            return 0

        def add(self, acc: int, record: Any) -> int:
            return acc

    class NoType(Sum):
        acc = "nothing"

    class OneColumn(Sum):
        columns = "amount"

    class NoColumns(Sum):
        columns: list[str] = []  # noqa: RUF012 - as users write it

    columns = {"k": "id", "at": "timestamp_seconds(id)"}
    stream = rl.Flow("f").read(rl.sources.generator(columns, rows=1)).event_time("at")
    for aggregator, expected in (
        (NoMerge(), "a method merge"),
        (NoType(), "acc of aggregate 'x'"),
        (OneColumn(), "a tuple of names"),
        (NoColumns(), "a tuple of names"),
        (Sum, "an instance"),
    ):
        with pytest.raises(InvalidFlowError, match=expected):
            stream.key_by("k").agg(x=aggregator)
        with pytest.raises(InvalidFlowError, match=expected):
            stream.window(rl.tumbling("1 hour")).agg(x=aggregator)


def test_least_and_greatest_decide_ties_by_value() -> None:
    least, greatest = merger("by_least"), merger("by_greatest")
    nan = float("nan")
    rows: list[tuple[Any, Any]] = [(2.0, "b"), (None, "z"), (2.0, "a"), (nan, None)]

    for first in rows:
        for second in rows:
            if first[0] is not None or second[0] is not None:
                assert least(first, second) == least(second, first)
                assert greatest(first, second) == greatest(second, first)
    assert least(rows[0], rows[2]) == (2.0, "a")
    assert greatest(rows[0], rows[2]) == (2.0, "b")
    assert greatest(rows[0], rows[3]) == rows[3]
    assert least(rows[1], rows[3]) == rows[3]


def test_sets_know_one_not_a_number() -> None:
    distinct = merger("distinct")
    size = finisher(type_of("bigint"), "size")

    (merged,) = distinct(([float("nan"), 1.0],), ([float("nan"), 2.0],))

    assert len(merged) == 3
    assert size(merged) == 3
    assert size(None) == 0


def test_sets_of_nested_values_know_one_not_a_number() -> None:
    kind = type_of("struct<a:double,b:array<double>>")
    made = codec_of(kind).python
    old = [made(float("nan"), [float("nan")]), made(1.0, [0.0])]
    new = [made(float("nan"), [float("nan")]), made(2.0, []), made(1.0, [0.0])]

    (merged,) = merger("distinct")((old,), (new,))

    assert [repr(v) for v in merged] == [repr(v) for v in (*old, new[1])]


def test_nested_values_are_compared_as_spark_does() -> None:
    made = codec_of(type_of("struct<a:double,b:array<int>>")).python
    nan = float("nan")
    ordered = [
        *(made(None, [1]), made(1.0, None), made(1.0, []), made(1.0, [None])),
        *(made(1.0, [2]), made(1.0, [2, 0]), made(2.0, None), made(nan, [1])),
    ]

    for first, second in pairwise(ordered):
        for a, b in ((first, second), (second, first)):
            assert merger("min")((a,), (b,))[0] is first
            assert merger("max")((a,), (b,))[0] is second
