"""Mistakes in user code, in the harness: our sentence, operator, key, record, line."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import riverlock as rl
from riverlock.core.errors import (
    DefinitionError,
    InvalidConfigError,
    RiverlockError,
    SourceError,
    StateTypeError,
    UserCodeError,
)
from riverlock.testing import Harness, harness, run_local

INPUT = "user string, amount double, at timestamp"
ANN = {"user": "ann", "amount": 3.0}


def _line_of(marker: str) -> str:
    """Return where a line of this file is."""
    lines = Path(__file__).read_text().splitlines()
    (number,) = [n for n, line in enumerate(lines, 1) if line.endswith(f"# {marker}")]
    return f"{__file__}:{number} in "


class Base(rl.Process):
    output = "user string, total double"
    spent = rl.Value("double", default=0.0)
    odd = rl.SideOutput("user string")


class TooFew(Base):
    def on_event(self, record: Any, ctx: rl.Context) -> Iterator[Any]:
        self.spent += record.amount
        yield (record.user,)  # too few


class WrongType(Base):
    def on_event(self, record: Any, ctx: rl.Context) -> Iterator[Any]:
        yield record.user, 1.0
        yield record.user, record.user  # wrong type


class WrongTypeReturned(Base):
    def on_event(self, record: Any, ctx: rl.Context) -> list[Any]:  # returned
        return [(record.user, record.user)]


class UnknownColumn(Base):
    def on_event(self, record: Any, ctx: rl.Context) -> Iterator[Any]:
        yield {"user": record.user, "totl": 1.0}  # unknown column


class ReturnsRow(Base):
    def on_event(self, record: Any, ctx: rl.Context) -> Any:  # returns a row
        return {"user": record.user, "total": 1.0}


class ReturnsNumber(Base):
    def on_event(self, record: Any, ctx: rl.Context) -> Any:  # returns a number
        return 5


class ReturnsMethod(Base):
    def on_event(self, record: Any, ctx: rl.Context) -> Any:  # returns a method
        return self.rows

    def rows(self) -> Iterator[Any]:
        yield "ann", 1.0


class TimerOfText(Base):
    def on_event(self, record: Any, ctx: rl.Context) -> None:
        ctx.set_timer("10 minutes")  # type: ignore[arg-type]  # text


class TimerOfNumber(Base):
    def on_event(self, record: Any, ctx: rl.Context) -> None:
        ctx.set_timer(5)  # type: ignore[arg-type]  # number


class NaiveTimer(Base):
    def on_event(self, record: Any, ctx: rl.Context) -> None:
        ctx.delete_timer(datetime(2024, 1, 1))  # noqa: DTZ001  # naive


class NoSide(Base):
    def on_event(self, record: Any, ctx: rl.Context) -> None:
        ctx.emit("ood", (record.user,))  # no side


class WrongSide(Base):
    def on_event(self, record: Any, ctx: rl.Context) -> None:
        ctx.emit(self.odd, (record.user, 1))  # wrong side


class NoColumn(Base):
    def on_event(self, record: Any, ctx: rl.Context) -> Iterator[Any]:
        yield record.usr, 1.0  # no column


class NoItem(Base):
    def on_event(self, record: Any, ctx: rl.Context) -> Iterator[Any]:
        yield record["usr"], 1.0  # no item


class WrongState(Base):
    def on_event(self, record: Any, ctx: rl.Context) -> None:
        self.spent = record.user  # wrong state


class Library(Base):
    def on_event(self, record: Any, ctx: rl.Context) -> None:
        datetime.fromisoformat(record.user)  # library


class InTimer(Base):
    def on_event(self, record: Any, ctx: rl.Context) -> None:
        ctx.set_timer(datetime(2024, 1, 1, tzinfo=UTC))

    def on_timer(self, at: datetime, ctx: rl.Context) -> Iterable[Any]:
        yield ("ann",)  # in a timer


CASES: list[tuple[Base, str, list[str]]] = [
    (TooFew(), "too few", ["2 values (user, total), got 1"]),
    (WrongType(), "wrong type", ["column 'total' needs double, got 'ann'"]),
    (WrongTypeReturned(), "returned", ["column 'total' needs double, got 'ann'"]),
    (UnknownColumn(), "unknown column", ["'totl'", "did you mean 'total'?"]),
    (
        ReturnsRow(),
        "returns a row",
        ["yield the row, or return a list of rows", "dict"],
    ),
    (ReturnsNumber(), "returns a number", ["return a list of rows", "got 5"]),
    (ReturnsMethod(), "returns a method", ["return a list of rows", "rows"]),
    (TimerOfText(), "text", ["set_timer() needs a datetime", "'10 minutes'"]),
    (TimerOfNumber(), "number", ["set_timer() needs a datetime", "got 5"]),
    (NaiveTimer(), "naive", ["delete_timer() needs a datetime with a time zone"]),
    (NoSide(), "no side", ["'ood'", "did you mean 'odd'?"]),
    (WrongSide(), "wrong side", ["got 2"]),
    (NoColumn(), "no column", ["'usr'", "did you mean 'user'?"]),
    (NoItem(), "no item", ["'usr'", "did you mean 'user'?"]),
    (Library(), "library", ["ValueError"]),
]


@pytest.mark.parametrize(
    ("process", "marker", "words"), CASES, ids=[m for _, m, _ in CASES]
)
def test_what_user_code_does_wrong_is_told_in_full(
    process: Base, marker: str, words: list[str]
) -> None:
    h = harness(process, key="user", input=INPUT, event_time="at", uid="totals")

    with pytest.raises(UserCodeError) as caught:
        h.send(ANN)

    told, error = str(caught.value), caught.value
    assert _line_of(marker) in told
    assert error.line in told
    assert (error.operator, error.key) == ("totals", "ann")
    assert "user='ann'" in str(error.record)
    assert [w for w in ("'totals'", "'ann'", *words) if w not in told] == []
    assert "__rl" not in told
    assert "<turns>" not in told
    assert "contextlib" not in told


def test_state_of_a_wrong_type_names_the_line() -> None:
    h = harness(WrongState(), key="user", input=INPUT, uid="totals")

    with pytest.raises(StateTypeError) as caught:
        h.send(ANN)

    assert _line_of("wrong state").removesuffix(" in ") in str(caught.value)


def test_a_row_of_a_timer_names_its_line() -> None:
    h = harness(InTimer(), key="user", input=INPUT, event_time="at", uid="totals")
    h.send(ANN)

    with pytest.raises(UserCodeError) as caught:
        h.advance_watermark(datetime(2024, 1, 2, tzinfo=UTC))

    assert _line_of("in a timer") in str(caught.value)
    assert caught.value.key == "ann"


def test_of_many_rows_the_one_that_does_not_fit_is_told() -> None:
    class Second(Base):
        def on_event(self, record: Any, ctx: rl.Context) -> Iterator[Any]:
            yield record.user, record.amount if record.amount < 3 else "much"

    h = harness(Second(), key="user", input=INPUT, uid="totals")

    with pytest.raises(UserCodeError) as caught:
        h.send({"user": "bob", "amount": 1.0}, ANN, {"user": "eve", "amount": 2.0})

    assert caught.value.key == "ann"
    assert "amount=3.0" in str(caught.value.record)
    assert h.output == []
    assert h.send({"user": "bob", "amount": 1.0}) == [("bob", 1.0)]


def wrong_name(h: Harness) -> object:
    return h.send({"usr": "ann"})


def wrong_value(h: Harness) -> object:
    return h.send({"user": "ann", "amount": "much"})


def wrong_number(h: Harness) -> object:
    return h.send(("ann",))


def wrong_state(h: Harness) -> object:
    return h.state("spnt", key="ann")


@pytest.mark.parametrize(
    ("use", "words"),
    [
        (wrong_name, ["send()", "'usr'", "did you mean 'user'?"]),
        (wrong_value, ["send()", "column 'amount' needs double, got 'much'"]),
        (wrong_number, ["send()", "3 values (user, amount, at), got 1"]),
        (wrong_state, ["'spnt'", "did you mean 'spent'?"]),
    ],
)
def test_what_a_test_sends_wrongly_names_its_line(
    use: Callable[[Harness], object], words: list[str]
) -> None:
    h = harness(TooFew(), key="user", input=INPUT)

    with pytest.raises(InvalidConfigError) as caught:
        use(h)

    told = str(caught.value)
    assert f"{__file__}:{use.__code__.co_firstlineno + 1} in {use.__name__}" in told
    assert [w for w in words if w not in told] == []


def test_a_misspelt_key_of_a_harness_is_told() -> None:
    with pytest.raises(RiverlockError, match="did you mean 'user'"):
        harness(TooFew(), key="usr", input=INPUT)


def _local(use: Callable[[rl.Stream], rl.Stream]) -> object:
    flow = rl.Flow("shop")
    source = rl.sources.files("in/", format="json", schema="user string, n long")
    use(flow.read(source, uid="in")).write(rl.sinks.memory(), uid="out")
    return run_local(flow, [("ann", 1), ("ann", 2)])


def number_of_rows(stream: rl.Stream) -> rl.Stream:
    return stream.flat_map(lambda r: 5, "n int", uid="op")


def a_row_as_rows(stream: rl.Stream) -> rl.Stream:
    return stream.flat_map(lambda r: {"n": 1}, "n int", uid="op")


def no_pair(stream: rl.Stream) -> rl.Stream:
    by = stream.key_by("user")
    return by.map_with_state(lambda r, s: 5, "long", "n long", uid="op")


def wrong_state_of_a_function(stream: rl.Stream) -> rl.Stream:
    by = stream.key_by("user")
    return by.map_with_state(lambda r, s: ((1,), "x"), "long", "n long", uid="op")


def wrong_fold(stream: rl.Stream) -> rl.Stream:
    return stream.key_by("user").reduce(lambda a, b: 5, uid="op")


@pytest.mark.parametrize(
    ("use", "words"),
    [
        (number_of_rows, ["return a list of rows", "got 5"]),
        (a_row_as_rows, ["return a list of rows", "dict"]),
        (no_pair, ["(row, state)", "got 5"]),
        (wrong_state_of_a_function, ["'x'"]),
        (wrong_fold, ["2 values (user, n), got 5"]),
    ],
)
def test_what_a_function_returns_wrongly_names_the_function(
    use: Callable[[rl.Stream], rl.Stream], words: list[str]
) -> None:
    with pytest.raises(RiverlockError) as caught:
        _local(use)

    told = str(caught.value)
    assert f"{__file__}:" in told
    assert "in <lambda>" in told
    assert [w for w in ("'op'", "user='ann'", *words) if w not in told] == []


def test_rows_of_run_local_that_do_not_fit_name_the_line() -> None:
    flow = rl.Flow("shop")
    source = rl.sources.files("in/", format="json", schema="user string, n long")
    flow.read(source, uid="in").write(rl.sinks.memory(), uid="out")

    with pytest.raises(InvalidConfigError) as caught:
        run_local(flow, [("ann",)])

    assert "2 values (user, n), got 1" in str(caught.value)
    assert f"{__file__}:" in caught.value.line


def test_names_that_are_near_are_told() -> None:
    flow = rl.Flow("shop")
    stream: Any = flow.read(rl.sources.rate(1), uid="in")
    every: Any = rl

    with pytest.raises(AttributeError, match="did you mean 'select'"):
        stream.selct("a")
    with pytest.raises(AttributeError, match="did you mean 'Value'"):
        every.Valu("double")


def test_a_private_name_of_state_is_told() -> None:
    class Private(Base):
        _hidden = rl.Value("long")

        def on_event(self, record: Any, ctx: rl.Context) -> None:
            pass

    with pytest.raises(RiverlockError, match="a public name") as caught:
        harness(Private(), key="user", input=INPUT)

    assert f"{__file__}:" in str(caught.value)


def test_a_store_that_is_no_path_is_told() -> None:
    flow = rl.Flow("shop")
    flow.read(rl.sources.rate(1), uid="in").write(rl.sinks.memory(), uid="out")
    number: Any = 5

    with pytest.raises(InvalidConfigError, match=r"a store needs a directory.*got 5"):
        flow.run(number)


def of_spark(stream: rl.Stream) -> rl.Stream:
    return stream.where("n > 1")


def sum_of_spark(stream: rl.Stream) -> rl.Stream:
    return stream.key_by("user").agg(total="sum(n)", uid="op")


def time_that_is_none(stream: rl.Stream) -> rl.Stream:
    timed = stream.map(lambda r: (r.user, "x"), "user string, at string", uid="m")
    return timed.event_time("at", uid="t")


@pytest.mark.parametrize("use", [of_spark, sum_of_spark, time_that_is_none])
def test_steps_that_cannot_run_here_name_their_line(
    use: Callable[[rl.Stream], rl.Stream],
) -> None:
    with pytest.raises(DefinitionError) as caught:
        _local(use)

    assert f" in {use.__name__}: return" in str(caught.value)


@pytest.mark.parametrize(
    ("row", "told"),
    [
        (("ann", "much"), "column 'amount' needs bigint, got 'much'"),
        (("ann", 1, 2), "a row needs 2 values"),
        (("\ud800", 1), "column 'user' needs string"),
        (("ann", 1 << 70), "column 'amount' needs bigint"),
        ({"user": "ann", "amonut": 1}, "a row has no column 'amonut'"),
    ],
)
def test_rows_of_a_list_that_do_not_fit_are_no_bug_of_ours(
    tmp_path: Path, row: Any, told: str
) -> None:
    flow = rl.Flow("rows")
    listed = rl.testing.rows("user string, amount long", [("ann", 1), row])
    flow.read(listed, uid="in").key_by("user").count(uid="n").write(
        rl.sinks.memory(), uid="out"
    )

    with pytest.raises(SourceError, match="could not read source 'rows'") as caught:
        flow.run(str(tmp_path), execution="local", available_now=True)

    assert told in str(caught.value)
    assert "of its rows 0 to 1" in str(caught.value)
