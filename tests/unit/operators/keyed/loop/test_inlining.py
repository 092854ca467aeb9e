"""Which ``on_event`` is written into the loop over records, and what stays a call."""

from __future__ import annotations

import linecache
import sys
from datetime import UTC, datetime
from typing import Any
from unittest import mock

import pytest
from tests.inlining import FRAME, INPUT, Run, both, called, made

from riverlock.operators.keyed.execution import Execution
from riverlock.operators.keyed.loop.inlining import source_of
from riverlock.program.params import Param
from riverlock.program.process import Process
from riverlock.state.spec import Value
from riverlock.testing import harness

AT = datetime(2024, 1, 1, tzinfo=UTC)
RECORDS = [
    (key, a, float(a), "s" * a, a % 2 == 0, AT)
    for a in range(1, 6)
    for key in ("u", "v", "w")
]
KEYS = 3


def check_same(process: Process, *epochs: list[Any]) -> Run:
    mine, by_calls = both(process, *(epochs or (RECORDS, RECORDS)))
    assert mine.content == by_calls.content
    return mine


def change_text(process: Process, old: str, new: str) -> None:
    """Change the file of a process behind its back."""
    name = type(process).on_event.__code__.co_filename
    lines = [line.replace(old, new) for line in linecache.getlines(name)]
    linecache.cache[name] = (1, None, lines, name)


@pytest.mark.parametrize(
    "body",
    [
        "self.n += 1\nself.x += record.b",
        "self.n = self.n + 1 if record.ok else 0",
        "self.x = max(self.x, record['b']) * self.scale / LIMIT",
        "if record.a > 3:\n    self.n = 7\n    return\nself.n -= record.a",
        "p = record.a\nif record.ok:\n    p = 2 * p\nself.n += p",
        "self.n += 1\nyield ctx.key, self.x",
        "self.n += 1\nif record.ok:\n    yield {'k': record.s, 'x': float(self.n)}",
        "self.n += 1\nreturn [(ctx.key, 1.0)] if record.ok else None",
        '"""Doc."""\nself.t = f"{self.n}:{record.s!r:>4}"\nself.n += len(record.s)',
        "self.x = record.a",  # an int, where a float is declared
        "self.y = record.b if self.y is None else self.y + record.b",
        "pass",
        "if record.ok: self.y = record.b\nself.x += 1.0 if self.y is None else self.y",
        "if record.a == 3:\n    self.y = None\n    self.x = self.y or 5\n"
        "elif record.ok:\n    self.y = 1.5",
        "if record.a == 4: self.n += 1",
        "if record.a == 4: self.x = None\nelif record.ok: self.x += record.a",
    ],
)
def test_what_computes_with_values_and_columns_takes_no_call(body: str) -> None:
    assert check_same(made(body)).keys_called == 0


@pytest.mark.parametrize(
    ("body", "because"),
    [
        ("print(end='')\nself.n += 1", "a call could be seen"),
        ("self.best.add(record.a)", "a handle"),
        ("self.n += 1\nctx.set_timer(ctx.now)", "a timer"),
        ("for i in range(3): self.n += i", "a loop"),
        ("self.n += [v for v in (1, 2)][0]", "a loop"),
        ("self.n += (p := 1)", "an assignment within"),
        ("if record.ok: p = 1\nself.n += p if record.a > 1 else 0", "p may be unset"),
        ("self.n += record is None", "the record itself"),
        ("record.a = 1\nself.n += 1", "a record that is changed"),
        ("self.other = 1", "an attribute that is no state"),
        ("del self.n", "a value that is deleted"),
        ("global LIMIT\nLIMIT = 4\nself.n += LIMIT", "a name that changes"),
        ("self.n += THINGS[0]", "an object that may change"),
        ("self.n += max(record.a, 1)", "another function of that name"),
        ("self.n += self.own", "a property"),
        ("self.n += 1 if record.at else 0", "a time, which records make"),
        ("self.n += 1 if self.n is record.a else 2", "numbers that are the same"),
        ("raise ValueError(record.a)", "an error"),
    ],
)
def test_what_is_not_known_to_be_the_same_is_called(body: str, because: str) -> None:
    frame = FRAME
    if "other function" in because:
        frame = frame.replace("LIMIT = 3", "LIMIT = 3\nmax = min")
    frame = frame.replace("LIMIT = 3", "LIMIT = 3\nTHINGS = [1, 2]")
    frame = frame.replace("scale = 2", "scale = 2\n    own = property(lambda s: 3)")

    run = check_same(made(body, frame))

    assert run.keys_called == (1 if run.error else 2) * KEYS


@pytest.mark.parametrize(
    "body",
    [
        "p = q = [1]\np += [2]\nself.n += len(q)",
        "p = q = [1]\np *= 3\nself.n += len(q)",
        "rows = total = []\nrows += [(ctx.key, record.b)]\nself.n += 1\nreturn total",
        "row = {'k': ctx.key}\nout = [row]\nrow |= {'x': record.b}\nreturn out",
        "self.n = p = []\nself.n += [1]\nself.n = len(p)",
        "if record.ok:\n    self.n = p = []\n    self.n += [1]\n    self.n = len(p)",
    ],
)
def test_what_changes_in_place_is_seen_under_all_its_names(body: str) -> None:
    assert check_same(made(body)).keys_called == 0


@pytest.mark.parametrize(
    "hidden",
    ["n = 5", "n = property(lambda self: 7, lambda self, v: None)"],
)
def test_a_value_that_a_subclass_hides_is_called_for(hidden: str) -> None:
    frame = FRAME.replace("class Made", "class Base").replace(
        "    def on_event", f"class Made(Base):\n    {hidden}\n    def on_event"
    )

    assert check_same(made("self.x += self.n", frame)).keys_called == 2 * KEYS


def test_a_value_with_reading_of_its_own_is_called_for() -> None:
    frame = FRAME.replace(
        "class Made",
        "class Own(Value):\n"
        "    def __get__(self, instance, owner):\n"
        "        return self if instance is None else 100\n"
        "class Made",
    ).replace("n = Value", "n = Own")

    run = check_same(made("self.n += 1", frame))

    assert (run.keys_called, run.harness.state("n", "u")) == (2 * KEYS, 110)


@pytest.mark.parametrize(
    "rare",
    [
        "self.bump()",
        "global LIMIT; LIMIT = 9",
        "ctx.set_timer(ctx.now, processing=True)",
    ],
)
def test_what_a_call_changes_is_seen_by_the_keys_after_it(rare: str) -> None:
    frame = FRAME.replace(
        "    def on_event",
        "    def bump(self):\n        global LIMIT; LIMIT = 10\n"
        "    def on_timer(self, at, ctx):\n        global LIMIT; LIMIT += 5\n"
        "    def on_event",
    )
    body = f"if record.a == 3 and ctx.key == 'w':\n    {rare}\nself.n += LIMIT"

    # Of each run its own class: a name of the module would stay changed.
    mine = Run(made(body, frame), [RECORDS])

    assert mine.content == called(made(body, frame), RECORDS).content
    assert mine.harness.state("n", "w") != mine.harness.state("n", "u")


@pytest.mark.parametrize(
    "head",
    [
        "def on_event(self, record, ctx, *, f=lambda r: 1):",
        "def on_event(self, record: (lambda: 0), ctx: (lambda: 1), /) -> (lambda: 2):",
        "def on_event(self, record, ctx, *more, **others):",
        "def on_event(self, record, ctx, extra=5):",
        "async def other(self): pass\n    def on_event(self, record, ctx=None):",
    ],
)
def test_a_method_with_an_unusual_head_runs(head: str) -> None:
    frame = FRAME.replace("def on_event(self, record, ctx):", head)

    check_same(made("self.n += 1", frame))


@pytest.mark.parametrize(
    "body",
    [
        "self.n += " + " + ".join(["1"] * 600),
        "if record.a < 0: pass\n"
        + "\n".join(f"elif record.a == {n + 9}: self.n = {n}" for n in range(500))
        + "\nelse: self.n += 1",
    ],
)
def test_a_method_that_goes_deep_runs(body: str) -> None:
    check_same(made(body))


def test_a_method_that_changes_a_variable_around_it_is_called() -> None:
    def counting() -> Process:
        count = 0

        class Counting(Process):
            n = Value("long", default=0)

            def on_event(self, record: Any, ctx: Any) -> None:
                nonlocal count
                count += 1
                self.n += count

        return Counting()

    mine = Run(counting(), [RECORDS])

    assert mine.content == called(counting(), RECORDS).content
    assert mine.keys_called == KEYS


def test_an_argument_that_is_called_like_a_function_is_the_argument() -> None:
    frame = FRAME.replace("record, ctx", "str, ctx")

    run = check_same(made("self.t = str(1)", frame))

    assert run.error is not None
    assert "not callable" in run.error[1]


def test_a_rare_branch_that_takes_a_call_leaves_the_other_keys_in_the_loop() -> None:
    records = [(f"k{n}", n, 0.5, "", True, AT) for n in range(300)]
    body = """
    self.n += record.a
    if record.a == 77:
        ctx.set_timer(ctx.now)
        self.best.add(5)
        yield ctx.key, 77.0
    """

    run = check_same(made(body), records, records)

    assert run.keys_called == 2
    assert [(k, x) for k, x in run.harness.output] == [("k77", 77.0)] * 2
    assert run.harness.state("best", "k77") == 5


def test_if_many_keys_take_calls_the_loop_gives_up() -> None:
    records = [(f"k{n:04}", n, 0.5, "", True, AT) for n in range(1000)]
    body = """
    self.n += 1
    yield ctx.key, 1.0
    if record.a % 2:
        ctx.set_timer(ctx.now)
    """

    run = check_same(made(body), records)

    assert 500 < run.keys_called < 1000
    assert len(run.harness.output) == 1000


def test_an_error_is_that_of_the_method_and_says_where() -> None:
    mine, by_calls = both(made("self.n += 1\nself.x += 1 / (3 - record.a)"), RECORDS)

    assert mine.error == by_calls.error
    assert mine.error is not None
    assert "ZeroDivisionError" in mine.error[1]
    assert "1 / (3 - record.a)" in mine.error[1]
    assert mine.keys_called == 1


def test_rows_of_an_attempt_that_ended_are_not_there_twice() -> None:
    body = """
    yield ctx.key, record.b
    self.n += 1
    if self.n == 4:
        ctx.set_timer(ctx.now)
    """

    run = check_same(made(body), RECORDS)

    assert len(run.harness.output) == len(RECORDS)


def test_a_value_that_is_set_to_none_is_unset() -> None:
    body = "self.x += 1.5\nif record.a == 3: self.x = None\nself.n += 1"

    run = check_same(made(body), RECORDS, RECORDS)

    assert run.harness.state("x", "u") == 3.0


def test_variables_of_one_record_are_not_there_for_the_next() -> None:
    run = check_same(made("if self.n == 0: p = 5\nself.n += p"), RECORDS[:3], RECORDS)

    assert run.error is not None
    assert "UnboundLocalError" in run.error[1]


def test_code_that_is_not_what_the_file_says_is_called() -> None:
    process = made("self.n += 1")
    change_text(process, "+= 1", "+= 2")

    run = check_same(process)

    assert run.harness.state("n", "u") == 10
    assert run.keys_called == 2 * KEYS


def test_numbers_that_are_equal_but_of_other_types_are_not_the_same_code() -> None:
    process = made("self.x = 1.0\nself.n = 3")
    change_text(process, "1.0", "1")

    assert check_same(process).keys_called == 2 * KEYS


def test_a_decorated_method_is_called() -> None:
    frame = FRAME.replace(
        "    def on_event",
        "    @lambda f: lambda self, record, ctx: f(self, record, ctx)\n"
        "    def on_event",
    )

    assert check_same(made("self.n += 1", frame)).keys_called == 2 * KEYS


def test_attributes_with_a_life_of_their_own_are_called_for() -> None:
    frame = FRAME.replace(
        "    def on_event",
        "    def __getattr__(self, name):\n"
        "        return 5 if name == 'who' else object.__getattribute__(self, name)\n"
        "    def on_event",
    )

    assert check_same(made("self.n += self.who", frame)).keys_called == 2 * KEYS


class Limited(Process):
    output = "k string, n long"
    n = Value("long", default=0)
    limit = Param(8)

    def on_event(self, record: Any, ctx: Any) -> Any:
        self.n += 1
        if self.n > self.limit:
            yield ctx.key, self.n


def test_parameters_are_those_of_the_epoch() -> None:
    run = check_same(Limited())
    assert run.keys_called == 0
    assert sorted(run.harness.output) == [(k, n) for k in "uvw" for n in (9, 10)]

    run.harness.set(limit=100)
    assert run.harness.send(*RECORDS) == []


def test_a_key_of_several_columns_is_a_tuple() -> None:
    process = made("self.t = f'{ctx.key}'\nself.n += 1")
    h = harness(process, key=["k", "a"], input=INPUT)

    with mock.patch.object(Execution, "_by_calls", side_effect=AssertionError):
        h.send(("u", 3, 1.5, "", True, AT))

    assert h.state("t", ("u", 3)) == "('u', 3)"


def test_a_method_that_open_puts_in_place_is_called() -> None:
    frame = FRAME.replace(
        "    def on_event",
        "    def open(self):\n        self.on_event = lambda record, ctx: None\n"
        "    def on_event",
    )

    run = check_same(made("self.n += 1", frame))

    assert run.keys_called == 2 * KEYS
    assert run.harness.state("n", "u") is None


def test_a_debugger_stops_in_the_method() -> None:
    process = made("self.n += 1")
    stopped = []

    def trace(frame: Any, event: str, _: Any) -> None:
        if event == "call" and frame.f_code is type(process).on_event.__code__:
            stopped.append(frame.f_lineno)

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        Run(process, [RECORDS])
    finally:
        sys.settrace(before)

    assert len(stopped) == len(RECORDS)


def test_a_process_without_text_is_called() -> None:
    process = made("self.n += 1")
    del linecache.cache[type(process).on_event.__code__.co_filename]

    assert source_of(process) is None
    assert check_same(process).keys_called == 2 * KEYS
