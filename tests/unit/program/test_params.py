"""Parameters as user code sees them."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

import riverlock as rl
from riverlock.core.errors import InvalidConfigError, InvalidFlowError, StateError
from riverlock.program.params import params_of
from riverlock.testing import harness, run_local
from riverlock.testing.local import LocalRun


class Limits(rl.Process):
    output = "k string, limit bigint, rate string, words bigint"
    limit = rl.Param(10, doc="the most")
    rate = rl.Param(Decimal("0.50"))
    words = rl.Param(["a", "b"])
    total = rl.Value("bigint", default=0)

    def open(self) -> None:
        self.number = len(self.words)

    def on_event(self, e: Any, ctx: Any) -> Any:
        if e.v == "assign":
            self.limit = 1
        if e.v == "append":
            self.words.append("c")
        self.total += self.limit
        yield e.k, self.total, str(self.rate), self.number


def limits() -> Any:
    return harness(Limits(), key="k", input="k string, v string")


def test_values_are_plain_attributes_of_an_epoch() -> None:
    h = limits()

    h.send(("a", ""))
    h.set(limit=5, words=[])
    h.send(("a", ""), ("b", ""))
    saved = h.snapshot()
    h.set(limit=1, rate=2)
    h.send(("a", ""))

    assert h.output == [
        ("a", 10, "0.50", 2),
        ("a", 15, "0.50", 0),
        ("b", 5, "0.50", 0),
        ("a", 16, "2", 0),
    ]
    again = h.restart(saved)
    assert again.send(("a", "")) == [("a", 20, "0.50", 0)]


@pytest.mark.parametrize("how", ["assign", "append"])
def test_a_process_that_writes_a_parameter_fails(how: str) -> None:
    h = limits()

    with pytest.raises(StateError, match="was written by its process"):
        h.send(("a", how))

    assert h.send(("a", "")) == [("a", 10, "0.50", 2)]


def test_a_parameter_is_not_assigned_when_the_flow_is_built() -> None:
    class Eager(Limits):
        def __init__(self) -> None:
            self.limit = 7

    assert Limits().limit == 10
    with pytest.raises(InvalidFlowError, match="to be set from outside"):
        Eager()


@pytest.mark.parametrize("default", [None, b"", (1,), float("nan"), [{1: 2}]])
def test_defaults_that_cannot_be_stored_are_refused(default: Any) -> None:
    with pytest.raises(InvalidFlowError, match="needs a default"):
        rl.Param(default)


def test_names_are_public_and_of_their_own() -> None:
    class Clash(Limits):
        total: Any = rl.Param(1)

    class Fixed(Limits):
        limit: Any = 3

    with pytest.raises(InvalidFlowError, match="a name of its own"):
        harness(Clash(), key="k", input="k string, v string")
    hidden = type("Hidden", (rl.Process,), {"_limit": rl.Param(1)})
    with pytest.raises(InvalidFlowError, match="a public name"):
        params_of(hidden)
    assert list(params_of(Fixed)) == ["rate", "words"]


def test_two_inputs_have_parameters_too() -> None:
    class Both(rl.TwoInputProcess):
        output = "v string"
        mark = rl.Param("!")

        def on_left(self, e: Any, ctx: Any) -> Any:
            yield (e.v + self.mark,)

        def on_right(self, e: Any, ctx: Any) -> Any:
            yield (self.mark + e.v,)

    columns = "k string, v string"
    h = harness(Both(), key="k", input=columns, right=columns)
    h.send(("a", "x"))
    h.set(mark="?")
    h.send_right(("a", "y"))

    assert h.output == [("x!",), ("?y",)]


def test_a_flow_without_spark_changes_between_epochs() -> None:
    flow = rl.Flow("limits")
    source = rl.sources.files("in", format="json", schema="k string, v string")
    stream = flow.read(source, uid="in")
    stream.key_by("k").process(Limits(), uid="limits").write(rl.sinks.memory())
    run = run_local(flow, [("a", "")])

    assert isinstance(run, LocalRun)
    run.set("limits", limit=1)
    run.epoch({"in": [("a", "")]})
    assert [row[1] for row in run.rows()] == [10, 11]
    with pytest.raises(InvalidConfigError, match="one of limits"):
        run.set("other", limit=1)
    with pytest.raises(InvalidConfigError, match="one of limit, rate, words"):
        run.set("limits", other=1)
    with pytest.raises(InvalidConfigError, match="a whole number"):
        run.set("limits", limit="1")
