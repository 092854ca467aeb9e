"""Which rows a process may emit, and to where."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import pytest
from tests.unit.operators.keyed.processes import (
    make,
    row,
)

from riverlock.core.errors import UserCodeError
from riverlock.program.process import Process, SideOutput


@dataclasses.dataclass
class Out:
    k: str
    n: int


class Gives(Process):
    output = "k string, n long"

    def __init__(self, give: Any) -> None:
        self.give = give

    def on_event(self, record: Any, ctx: Any) -> Any:
        return self.give(record)


@pytest.mark.parametrize(
    "give",
    [
        lambda r: [(r.k, 1)],
        lambda r: [{"n": 1, "k": r.k}],
        lambda r: [Out(r.k, 1)],
        lambda r: [[r.k, 1]],
        lambda r: iter([(r.k, 1)]),
        lambda r: ((r.k, 1) for _ in range(1)),
        lambda r: ((r.k, 1),),
    ],
)
def test_rows_may_be_tuples_dicts_or_dataclasses(give: Any) -> None:
    h = make(Gives(give))

    assert h.send(row("a")) == [("a", 1)]
    assert h.rows() == [{"k": "a", "n": 1}]


def test_record_may_be_given_on_as_a_row() -> None:
    class Same(Process):
        output = "v long, k string"

        def on_event(self, record: Any, ctx: Any) -> Iterator[Any]:
            yield record

    assert make(Same()).send(row("a", 4)) == [(4, "a")]


@pytest.mark.parametrize(
    ("give", "text"),
    [
        (lambda _: [(1,)], r"needs 2 values \(k, n\), got 1"),
        (lambda _: [("a", 1, 2)], "needs 2 values"),
        (lambda _: [{"k": "a", "m": 1}], "no column 'm', only k, n"),
        (lambda _: {"k": "a"}, "yield the row"),
        (lambda _: "ab", "yield the row"),
        (lambda _: ("a", 1), "yield rows, or return a list"),
        (lambda _: 5, "return a list of rows; got 5"),
    ],
)
def test_bad_rows_name_operator_key_and_record(give: Any, text: str) -> None:
    h = make(Gives(give), uid="op")

    with pytest.raises(UserCodeError, match=text) as caught:
        h.send(row("ann"))

    assert (caught.value.operator, caught.value.key) == ("op", "ann")
    assert "v=1" in str(caught.value)


def test_rows_of_a_process_without_output_are_refused() -> None:
    class Silent(Process):
        def on_event(self, record: Any, ctx: Any) -> Iterator[Any]:
            yield (1,)

    with pytest.raises(UserCodeError, match="declares no output"):
        make(Silent()).send(row("a"))


def test_side_outputs_are_streams_of_their_own() -> None:
    class Odd(Process):
        odd = SideOutput("k string, why string")
        rest = SideOutput("n long")

        def on_event(self, record: Any, ctx: Any) -> None:
            ctx.emit(self.odd, (ctx.key, "because"))
            ctx.emit("rest", {"n": record.v})

    h = make(Odd())
    h.send(row("a", 3))

    assert (h.side("odd"), h.side("rest")) == ([("a", "because")], [(3,)])
    assert h.rows("rest") == [{"n": 3}]


def test_unknown_side_output_names_those_there_are() -> None:
    class Odd(Process):
        odd = SideOutput("k string")

        def on_event(self, record: Any, ctx: Any) -> None:
            ctx.emit("od", ("a",))

    with pytest.raises(UserCodeError, match=r"a declared side output \(odd\)"):
        make(Odd()).send(row("a"))
