"""An ``on_event`` that is written into the loop does what calling it does."""

from __future__ import annotations

import math
from datetime import UTC, datetime

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.inlining import both, made

NUMBERS = st.sampled_from(
    ["self.n", "self.x", "record.a", "record.b", "LIMIT", "self.scale", "1", "2.5", "0"]
)
LOCALS = st.sampled_from(["p", "q"])
TEXTS = st.sampled_from(["self.t", "record.s", "'z'", "ctx.key", "record['s']"])


def _operations(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    pairs = st.tuples(inner, st.sampled_from(["+", "-", "*", "+", "%"]), inner)
    return st.one_of(
        pairs.map(lambda p: f"({p[0]} {p[1]} {p[2]})"),
        st.tuples(st.sampled_from(["max", "min"]), inner, inner).map(
            lambda p: f"{p[0]}({p[1]}, {p[2]})"
        ),
        st.tuples(inner, inner, inner).map(lambda p: f"({p[0]} if {p[1]} else {p[2]})"),
        inner.map(lambda e: f"abs({e})"),
        inner.map(lambda e: f"int({e})"),
        inner.map(lambda e: f"round({e}) - {e}"),
    )


EXPRESSIONS = st.recursive(st.one_of(NUMBERS, LOCALS), _operations, max_leaves=4)
CONDITIONS = st.one_of(
    st.tuples(EXPRESSIONS, st.sampled_from(["<", "==", ">="]), EXPRESSIONS).map(
        " ".join
    ),
    st.sampled_from(
        [
            *("record.ok", "not record.ok", "self.t is None", "record.a is not None"),
            *("record.s == self.t", "self.y is None", "record.a and self.n > 2"),
        ]
    ),
)
TARGETS = st.sampled_from(["self.n", "self.x", "self.x", "self.y", "p", "q"])
ASSIGNMENTS = st.one_of(
    st.tuples(TARGETS, st.sampled_from(["=", "+=", "-="]), EXPRESSIONS).map(" ".join),
    st.tuples(st.just("self.x ="), EXPRESSIONS).map(" ".join),
    st.tuples(st.just("self.n += int("), EXPRESSIONS, st.just(")")).map("".join),
    TEXTS.map(lambda e: f"self.t = {e}"),
    TEXTS.map(lambda e: f'self.t = f"{{{e}}}!"'),
    EXPRESSIONS.map(lambda e: f"yield ctx.key, {e}"),
    EXPRESSIONS.map(lambda e: f"yield {{'k': record.s, 'x': {e}}}"),
)
OTHERS = st.sampled_from(
    [
        *("return", "pass", "self.x = None", "self.n, self.x = 1, 2.0", "del self.x"),
        *("self.best.add(1)", "ctx.set_timer(ctx.now)", "raise ValueError(self.n)"),
        *("self.n = self.x = 7", "p: float = 1", "return [('r', self.x)]"),
        *("q = p = [self.n]", "p += [1]", "q *= 2", "self.n += len(p) - len(q)"),
    ]
)
SIMPLE = st.one_of(*[ASSIGNMENTS] * 5, OTHERS)


def _branches(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    blocks = st.lists(inner, min_size=1, max_size=3).map("\n".join)

    def written(parts: tuple[str, str, str | None]) -> str:
        test, then, other = parts
        text = f"if {test}:\n" + _indented(then)
        return text if other is None else f"{text}\nelse:\n" + _indented(other)

    return st.tuples(CONDITIONS, blocks, st.none() | blocks).map(written)


def _indented(text: str) -> str:
    return "\n".join(f"    {line}" for line in text.split("\n"))


STATEMENTS = st.recursive(SIMPLE, _branches, max_leaves=4)
# Most bodies have their variables assigned first: the others raise, soon.
BEGINS = st.sampled_from(
    ["p, q = 1, 2.0", "p = q = record.b", "q = p = self.n", "p = 1"]
)
BODIES = st.tuples(
    BEGINS, st.lists(STATEMENTS, min_size=1, max_size=4).map("\n".join)
).map("\n".join)
START = datetime(2024, 1, 1, tzinfo=UTC)
RECORDS = st.tuples(
    st.sampled_from("uvw"),
    st.none() | st.integers(-3, 9),
    st.none() | st.sampled_from([0.0, -0.0, 1.5, -2.25, math.inf, math.nan]),
    st.none() | st.sampled_from(["", "z", "ü"]),
    st.none() | st.booleans(),
    st.just(START),
)
WHOLE = st.tuples(
    st.sampled_from("uvw"),
    st.integers(-3, 9),
    st.sampled_from([0.0, -0.0, 1.5, -2.25]),
    st.sampled_from(["", "z", "ü"]),
    st.booleans(),
    st.just(START),
)
EPOCHS = st.lists(
    st.lists(RECORDS, min_size=1, max_size=8) | st.lists(WHOLE, min_size=1, max_size=8),
    min_size=1,
    max_size=3,
)


@settings(max_examples=150, deadline=None)
@given(BODIES, EPOCHS)
def test_written_out_or_called_it_is_the_same(
    body: str, epochs: list[list[object]]
) -> None:
    mine, called = both(made(body), *epochs)

    assert mine.content == called.content
