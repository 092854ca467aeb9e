"""Flows that are impossible are refused before anything runs."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import SparkSession
from tests.integration.orders import ORDERS, source

import riverlock as rl
from riverlock.core.errors import (
    InvalidFlowError,
)
from riverlock.engines.running import check
from riverlock.flow.inside import program_of

pytestmark = pytest.mark.spark


class Useless(rl.Process):
    output = "x int"

    def on_event(self, e: Any, ctx: Any) -> Any:
        yield (1,)


class Silent(rl.Process):
    def on_event(self, e: Any, ctx: Any) -> None:
        pass


def _build(what: str, stream: Any) -> None:  # noqa: C901 - one arm per mistake
    match what:
        case "unknown key":
            stream.key_by("usr")
        case "unknown column":
            stream.where("nothing > 1").write(rl.sinks.memory())
            check(program_of(stream))
        case "duplicate uid":
            stream.key_by("user").process(Useless(), uid="x")
            stream.key_by("user").process(Useless(), uid="x")
        case "class instead of instance":
            stream.key_by("user").process(Useless)
        case "nested key":
            stream.with_column("k", "array(user)").key_by("k").count()
            check(program_of(stream))
        case "event time type":
            stream.event_time("n").write(rl.sinks.memory())
            check(program_of(stream))
        case "unsupported aggregate":
            stream.key_by("user").agg(x="corr(n, n)").write(rl.sinks.memory())
            check(program_of(stream))
        case "no output declared":
            stream.key_by("user").process(Silent()).write(rl.sinks.memory())
        case "union of other columns":
            stream.union(stream.select("user"))
        case "nothing to do":
            check(program_of(stream))
        case "unpicklable":
            import threading

            process = Useless()
            process.lock = threading.Lock()  # type: ignore[attr-defined]
            stream.key_by("user").process(process)
            check(program_of(stream))
        case other:
            raise AssertionError(other)


@pytest.mark.parametrize(
    "what",
    [
        "unknown key",
        "unknown column",
        "duplicate uid",
        "class instead of instance",
        "nested key",
        "event time type",
        "unsupported aggregate",
        "no output declared",
        "union of other columns",
        "nothing to do",
        "unpicklable",
    ],
)
def test_impossible_flows_are_refused_before_anything_runs(
    spark: SparkSession,
    orders_dir: str,
    what: str,
    capfd: pytest.CaptureFixture[str],
) -> None:
    stream = rl.Flow("bad").read(source(orders_dir, ORDERS))

    with pytest.raises(InvalidFlowError) as caught:
        _build(what, stream)

    assert " needs " in str(caught.value)
    assert f"{__file__}:" in caught.value.line
    assert "org.apache.spark" not in str(caught.value) + capfd.readouterr().err
