"""Mistakes of users in building a flow: each is told with the user's own line."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any

import pytest

import riverlock as rl
from riverlock.core.errors import DefinitionError, RiverlockError


def _flow() -> tuple[rl.Flow, rl.Stream]:
    flow = rl.Flow("shop")
    columns = "user string, amount double, at timestamp, text string"
    return flow, flow.read(rl.sources.files("in/", format="json", schema=columns))


class Fine(rl.Process):
    output = "user string"

    def on_event(self, record: Any, ctx: rl.Context) -> Iterator[Any]:
        yield (record.user,)


class NoContext(Fine):
    def on_event(self, record: Any) -> Iterator[Any]:  # type: ignore[override]
        yield (record.user,)


class Asynchronous(Fine):
    async def on_event(  # type: ignore[override]
        self, record: Any, ctx: rl.Context
    ) -> None:
        pass


class OddTimer(Fine):
    def on_timer(self, ctx: rl.Context) -> None:  # type: ignore[override]
        pass


class OnlyLeft(rl.TwoInputProcess):
    output = "user string"

    def on_left(self, record: Any) -> Iterator[Any]:  # type: ignore[override]
        yield (record.user,)

    def on_right(self, record: Any, ctx: rl.Context) -> None:
        pass


def misspelt_key() -> object:
    return _flow()[1].key_by("usr")


class Misspelt(rl.Process):
    output = "user string"

    def on_evnt(self, record: Any, ctx: rl.Context) -> None:
        pass


def misspelt_method() -> object:
    return _flow()[1].key_by("user").process(Misspelt())


def number_as_name() -> object:
    name: Any = 5
    return rl.Flow(name)


def uid_of_two() -> object:
    stream = _flow()[1]
    stream.write(rl.sinks.memory(), uid="out")
    return stream.write(rl.sinks.memory(), uid="out")


def kafka_uncalled() -> object:
    source: Any = rl.sources.kafka
    return _flow()[0].read(source)


def files_uncalled() -> object:
    sink: Any = rl.sinks.files
    return _flow()[1].write(sink)


def misspelt_time() -> object:
    return _flow()[1].event_time("att")


def time_of_text() -> object:
    return _flow()[1].event_time("text")


def misspelt_type() -> object:
    return _flow()[1].map(lambda r: r, output="user strng")


def misspelt_state() -> object:
    return rl.Value("duble")


def unknown_scope() -> object:
    return rl.Value("double", scope="keys")


def wrong_default() -> object:
    return rl.Value("double", default="none")


def no_source() -> object:
    return _flow()[0].read("in/")  # type: ignore[arg-type]


def no_sink() -> object:
    return _flow()[1].write("out/")  # type: ignore[arg-type]


def sink_class() -> object:
    return _flow()[1].write(rl.sinks.memory)  # type: ignore[arg-type]


def no_dead_letter_sink() -> object:
    return rl.Flow("shop", on_error="fail")  # type: ignore[arg-type]


def no_sink_of_map() -> object:
    return _flow()[1].map(lambda r: r, output="a int", on_error="x")  # type: ignore[arg-type]


def function_of_two() -> object:
    return _flow()[1].map(lambda r, s: r, output="user string")  # type: ignore[arg-type,misc]


def fold_of_one() -> object:
    return _flow()[1].key_by("user").reduce(lambda a: a)  # type: ignore[arg-type,misc]


def class_of_process() -> object:
    return _flow()[1].key_by("user").process(Fine)  # type: ignore[arg-type]


def wrong_duration() -> object:
    return _flow()[1].event_time("at", delay="soon")


def number_as_duration() -> object:
    return _flow()[1].event_time("at", delay=5)  # type: ignore[arg-type]


def unknown_format() -> object:
    return rl.sources.files("in/", format="jsn", schema="a int")


def wrong_mode() -> object:
    return _flow()[1].write(rl.sinks.memory(), mode="updates")


def windows_without_time() -> object:
    return _flow()[1].key_by("user").window(rl.tumbling("1 minute")).agg(n="count(*)")


def not_a_window() -> object:
    stream = _flow()[1].event_time("at").key_by("user")
    return stream.window("1 minute")  # type: ignore[arg-type]


def no_aggregate() -> object:
    return _flow()[1].key_by("user").agg(total=5)


DEFINITIONS: list[tuple[Callable[[], object], list[str]]] = [
    (misspelt_key, ["'usr'", "did you mean 'user'?"]),
    (misspelt_method, ["a method on_event", "rename on_evnt to on_event"]),
    (number_as_name, ["flow name needs", "got 5"]),
    (uid_of_two, ["uid= needs a name that nothing else in the flow has", "got 'out'"]),
    (kafka_uncalled, ["call it: rl.sources.kafka(...)"]),
    (files_uncalled, ["call it: rl.sinks.files(...)"]),
    (misspelt_time, ["'att'", "did you mean 'at'?"]),
    (time_of_text, ["'text'", "a timestamp", "string"]),
    (misspelt_type, ["'strng'", "did you mean 'string'?"]),
    (misspelt_state, ["'duble'", "did you mean 'double'?"]),
    (unknown_scope, ["'keys'", "did you mean 'key'?"]),
    (wrong_default, ["double", "'none'"]),
    (no_source, ["flow.read() needs a source from rl.sources, got 'in/'"]),
    (no_sink, ["write() needs a sink from rl.sinks, got 'out/'"]),
    (sink_class, ["rl.sinks.memory(...)"]),
    (no_dead_letter_sink, ["on_error", "rl.sinks"]),
    (no_sink_of_map, ["on_error", "rl.sinks"]),
    (function_of_two, ["map", "a function of one record"]),
    (fold_of_one, ["reduce", "a function of two"]),
    (class_of_process, ["write Fine()"]),
    (wrong_duration, ["'soon'", "'10 seconds'"]),
    (number_as_duration, ["5", "'10 seconds'"]),
    (unknown_format, ["'jsn'", "did you mean 'json'?"]),
    (wrong_mode, ["'updates'", "update"]),
    (windows_without_time, ["event time", ".event_time("]),
    (not_a_window, ["rl.tumbling", "'1 minute'"]),
    (no_aggregate, ["agg(total=)", "5"]),
]


@pytest.mark.parametrize(
    ("mistake", "words"), DEFINITIONS, ids=[m.__name__ for m, _ in DEFINITIONS]
)
def test_a_definition_that_cannot_be_names_the_users_line(
    mistake: Callable[[], object], words: list[str]
) -> None:
    with pytest.raises(DefinitionError) as caught:
        mistake()

    told = str(caught.value)
    lines, first = inspect.getsourcelines(mistake)
    number = first + max(n for n, line in enumerate(lines) if "return" in line)
    assert f"{__file__}:{number} in {mistake.__name__}: return" in told
    assert caught.value.line in told
    assert [w for w in words if w not in told] == []


@pytest.mark.parametrize(
    ("process", "method", "wanted"),
    [
        (NoContext(), "on_event", "on_event(self, record, ctx)"),
        (Asynchronous(), "on_event", "def on_event"),
        (OddTimer(), "on_timer", "on_timer(self, at, ctx)"),
    ],
    ids=["event", "async", "timer"],
)
def test_a_method_that_could_not_be_called_is_told_when_the_flow_is_built(
    process: rl.Process, method: str, wanted: str
) -> None:
    with pytest.raises(DefinitionError) as caught:
        _flow()[1].key_by("user").process(process, uid="op")

    function = getattr(type(process), method)
    place = f"{__file__}:{function.__code__.co_firstlineno} in {method}"
    assert place in str(caught.value)
    assert wanted in str(caught.value)
    assert "'op'" in str(caught.value)


def test_a_handler_of_two_inputs_is_looked_at_too() -> None:
    _, stream = _flow()
    both = stream.key_by("user").connect(stream.key_by("user"))

    with pytest.raises(DefinitionError, match=r"on_left\(self, record, ctx\)"):
        both.process(OnlyLeft(), uid="op")


def test_methods_that_python_can_call_are_taken() -> None:
    class Loose(Fine):
        def on_event(self, *given: Any) -> Iterator[Any]:
            yield (given[0].user,)

    class More(Fine):
        def on_timer(self, at: datetime, ctx: rl.Context, extra: int = 0) -> None:
            pass

    _, stream = _flow()
    stream.key_by("user").process(Loose(), uid="a")
    stream.key_by("user").process(More(), uid="b")
    stream.map(dict, output="user string")
    stream.filter(bool)


def test_the_line_is_that_of_the_step_in_a_chain() -> None:
    _, stream = _flow()

    with pytest.raises(RiverlockError) as caught:
        (
            stream.filter(lambda r: r.amount > 0)
            .event_time("at")
            .key_by("nobody")  # here
            .count()
        )

    assert '.key_by("nobody")  # here' in str(caught.value)
