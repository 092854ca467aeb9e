"""What may be a key."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any

import pytest
from tests.unit.operators.keyed.processes import (
    Sum,
    T,
    make,
    row,
)

from riverlock.program.process import Process
from riverlock.state.spec import List, Map, Value
from riverlock.testing import harness


@pytest.mark.parametrize(
    "key", [None, "", "ünïcødé 🎉", "x" * 511, "x" * 512, "y" * 100_000, "a\x00b"]
)
def test_any_text_is_a_key(key: str | None) -> None:
    class Both(Sum):
        recent = List("long")
        seen = Map("string", "long")

        def on_event(self, record: Any, ctx: Any) -> Iterator[Any]:
            assert ctx.key == key
            self.recent.append(record.v)
            self.seen[key or "none"] = record.v
            ctx.set_timer(T)
            yield from super().on_event(record, ctx)

        def on_timer(self, at: datetime, ctx: Any) -> Iterator[Any]:
            yield ctx.key, -1.0

    h = make(Both())
    h.send(row(key, 1))
    h = h.restart(h.snapshot())
    h.send(row(key, 2))
    h.advance_watermark(T)

    assert h.output == [(key, 3.0), (key, -1.0)]
    assert h.state("recent", key) == [1, 2]
    assert h.state("seen", key) == {key or "none": 2}
    assert h.keys() == [key]


def test_composite_keys_are_tuples() -> None:
    class Pair(Process):
        output = "a string, b long, n long"
        n = Value("long", default=0)

        def on_event(self, record: Any, ctx: Any) -> Iterator[Any]:
            self.n += 1
            yield *ctx.key, self.n

    h = harness(Pair(), key=["a", "b"], input="a string, b long, c long")
    h.send(("x", 1, 0), ("x", None, 0), (None, 1, 0), ("x", 1, 0))
    h.send((None, 1, 0))

    assert sorted(h.output, key=repr) == sorted(
        [("x", 1, 1), ("x", None, 1), (None, 1, 1), ("x", 1, 2), (None, 1, 2)],
        key=repr,
    )
    assert h.state("n", ("x", 1)) == 2
    assert h.state("n", (None, 1)) == 2


def test_float_keys_that_are_equal_are_one_key() -> None:
    class Count(Process):
        output = "n long"
        n = Value("long", default=0)

        def on_event(self, record: Any, ctx: Any) -> Iterator[Any]:
            self.n += 1
            yield (self.n,)

    nan = float("nan")
    h = harness(Count(), key="f", input="f double")
    h.send((0.0,), (-0.0,), (nan,), (-nan,))
    h.send((-0.0,), (nan,))

    assert sorted(h.output) == [(1,), (1,), (2,), (2,), (3,), (3,)]


def test_values_of_16_megabytes_are_stored() -> None:
    class Large(Process):
        blob = Value("binary")
        blobs = Map("long", "binary")

        def on_event(self, record: Any, ctx: Any) -> None:
            self.blob = bytes([record.v]) * (16 << 20)
            self.blobs[record.v] = self.blob

    h = make(Large())
    h.send(row("a", 1))
    h.send(row("a", 2))

    assert h.state("blob", "a") == b"\x02" * (16 << 20)
    assert sorted(h.state("blobs", "a")) == [1, 2]
