"""What processes are given besides the record, and what is called of theirs."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any

import pytest

import riverlock as rl
from riverlock.core.types import schema_of
from riverlock.operators.keyed.context import OperatorContext
from riverlock.operators.shipped import EpochInfo, OperatorProgram
from riverlock.testing import harness


class Own(rl.Process):
    """Has methods with the names of methods that only our own operators have."""

    output = "k string, n long"
    n = rl.Value("long", default=0)

    def on_event(self, record: Any, ctx: rl.Context) -> Iterator[Any]:
        self.n += 1
        ctx.set_timer(ctx.now, processing=True)
        yield (ctx.key, self.n)

    def on_timer(self, at: datetime, ctx: rl.Context) -> None:
        if self.n > 1:
            message = "no more"
            raise ValueError(message)

    def never(self, *_: Any) -> Any:
        message = "called by nobody"
        raise AssertionError(message)

    run = bound = in_time = prepared = at_once = never
    end_key = give_up_timer = has_own = _result = _skip = never


@pytest.mark.parametrize("on_error", ["fail", "dead_letter"])
def test_methods_of_users_may_have_the_names_of_ours(on_error: Any) -> None:
    h = harness(Own(), key="k", input="k string", on_error=on_error)

    assert h.send(("a",)) == [("a", 1)]
    assert h.state("n", key="a") == 1
    if on_error == "dead_letter":
        assert h.send(("a",)) == [("a", 2)]
        assert "no more" in h.dead_letters[0]["error"]


def test_operators_are_given_all_that_users_are_promised() -> None:
    columns = schema_of("k string")
    program = OperatorProgram(
        uid="own", process=Own(), keys=columns, input=columns, outputs={}
    )

    # That it also has the types is for the type checker to say.
    ctx: rl.Context = OperatorContext(program, EpochInfo(epoch=1, now_us=0, seed=0))

    promised = {name for name in dir(rl.Context) if not name.startswith("_")}
    assert promised > {"key", "time", "set_timer"}
    assert {name for name in promised if not hasattr(ctx, name)} == set()
