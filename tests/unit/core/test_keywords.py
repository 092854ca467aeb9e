"""Misspelt keywords of sinks, sources and windows are told in our words."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import riverlock as rl
from riverlock.core.errors import DefinitionError
from riverlock.core.keywords import told_keywords

SINKS, SOURCES = rl.sinks, rl.sources


def _public() -> list[Callable[..., Any]]:
    names = [(m, n) for m in (SINKS, SOURCES) for n in m.__all__ if n[0].islower()]
    windows = ("tumbling", "sliding", "sessions", "count_windows", "global_window")
    others = [getattr(rl, n) for n in (*windows, "early", "at_watermark", "pattern")]
    return [*(getattr(m, n) for m, n in names), *others]


@pytest.mark.parametrize(
    "function", _public(), ids=lambda f: f"{f.__module__}.{f.__name__}"
)
def test_every_public_function_tells_wrong_keywords(
    function: Callable[..., Any],
) -> None:
    with pytest.raises(DefinitionError) as caught:
        function(*range(99))

    assert caught.value.what == f"{function.__name__}()"
    assert f"{__file__}:" in caught.value.line


def misspelt(**options: Any) -> object:
    return rl.sinks.kafka("host:9092", "t", **options)


def test_a_misspelt_keyword_is_told_with_the_nearest() -> None:
    with pytest.raises(DefinitionError) as caught:
        misspelt(guarantie="exactly_once")

    told = str(caught.value)
    assert "kafka() needs" in told
    assert "got guarantie=" in told
    assert "did you mean 'guarantee'?" in told
    assert f"{__file__}:{misspelt.__code__.co_firstlineno + 1} in misspelt" in told


def test_a_missing_one_is_named() -> None:
    broken: Any = rl.sinks.files

    with pytest.raises(DefinitionError, match=r"files\(\) needs format=, got none"):
        broken("out/")


@pytest.mark.parametrize(
    ("written", "meant"),
    [("shema", "schema"), ("bad_row", "bad_rows"), ("badRows", "bad_rows")],
)
def test_options_of_spark_do_not_hide_misspelt_ones_of_ours(
    written: str, meant: str
) -> None:
    options: dict[str, Any] = {written: "x"}

    with pytest.raises(DefinitionError, match=f"did you mean '{meant}'"):
        rl.sources.files("in/", format="text", **options)


@pytest.mark.parametrize("option", ["dateFormat", "timestampFormat", "sep", "mode_x"])
def test_options_of_spark_are_taken(option: str) -> None:
    options: dict[str, Any] = {option: "x"}

    assert rl.sources.files("in/", format="csv", schema="a int", **options)


def test_errors_of_type_within_are_passed_on() -> None:
    @told_keywords
    def broken(n: int) -> int:
        return n + "x"  # type: ignore[operator]

    with pytest.raises(TypeError, match="unsupported operand"):
        broken(5)


# Not typed: type checkers would find the mistakes, too.
RL: Any = rl
_ORDERS = "user string, amount double, at timestamp"


def _stream() -> Any:
    return rl.Flow("shop").read(rl.testing.rows(_ORDERS, []), uid="in")


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (lambda: RL.Value("long", defalt=0), "rl.Value() needs one of the keywords"),
        (lambda: RL.List("long", tll="1 h"), "rl.List() needs one of the keywords"),
        (lambda: RL.Map("string"), "rl.Map() needs value=, got none"),
        (lambda: RL.Param(1, docs="x"), "rl.Param() needs one of the keywords"),
        (lambda: RL.Flow("f", key_group=1), "did you mean 'key_groups'?"),
        (lambda: RL.Flow("f").replay("s", 1, kee=1), "replay() needs one of"),
        (lambda: RL.Flow("f").check("s"), "check() needs nothing by position"),
        (lambda: _stream().event_time("at", dely="1 s"), "did you mean 'delay'?"),
        (lambda: _stream().map(lambda r: r), "map() needs output=, got none"),
        (lambda: _stream().key_by("user").top(3, bye="at"), "did you mean 'by'?"),
        (lambda: RL.testing.harness(inpt=""), "did you mean 'input'?"),
        (lambda: RL.testing.run_local(_stream(), epoch_row=1), "'epoch_rows'?"),
    ],
)
def test_methods_tell_wrong_arguments_too(call: Callable[[], Any], told: str) -> None:
    with pytest.raises(DefinitionError) as caught:
        call()

    assert told in str(caught.value)
    assert f"{__file__}:" in caught.value.line
