"""A record that becomes a dead letter leaves nothing behind, and takes nobody along."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final

from hypothesis import given, settings
from hypothesis import strategies as st

from riverlock.program.process import Process, SideOutput
from riverlock.state.spec import List, Map, Reducing, Value
from riverlock.testing import Harness, harness


@dataclass
class Account:
    total: float = 0.0
    tags: list[str] = field(default_factory=list)


def kept(old: list[float], new: list[float]) -> list[float]:
    return old + new


class Fragile(Process):
    """Does something to its state, shows all of it, and then perhaps fails."""

    output = "seen string"
    side = SideOutput("seen string")
    n = Value("long", default=7)
    share = Value("float", default=0.5)
    name = Value("string")
    account = Value(Account, default=Account())
    floats = Value("array<float>", default=[])
    brief = Value("array<float>", ttl="1 day", default=[])
    brief_n = Value("long", ttl="1 day", default=3)
    items = List("array<float>")
    plain_items = List("float")
    named = Map("string", Account)
    fold = Reducing("array<float>", kept)
    shared = Value("array<float>", default=[], scope="group")
    shared_n = Value("int", default=1, scope="group")
    shared_items = List(Account, scope="group")

    def on_event(self, record: Any, ctx: Any) -> Iterator[Any]:
        yield (self._shown(ctx),)
        WAYS[record.way](self, record.x, ctx)
        ctx.emit(self.side, (self._shown(ctx),))
        yield (self._shown(ctx),)
        if record.failure >= 0:
            FAILURES[record.failure](self)

    def on_timer(self, at: Any, ctx: Any) -> Iterator[Any]:
        self.n += 1
        yield (f"timer {self._shown(ctx)}",)

    def _shown(self, ctx: Any) -> str:
        values = [
            self.n,
            self.share,
            self.name,
            self.account,
            self.floats,
            self.brief,
            self.brief_n,
            list(self.items),
            list(self.plain_items),
            dict(self.named),
            self.fold.value,
            self.shared,
            self.shared_n,
            list(self.shared_items),
            ctx.timers(processing=True),
        ]
        return repr(values)


def _chance(p: Any, x: float, ctx: Any) -> None:
    p.share = ctx.random.random()


def _tag(p: Any, x: float, ctx: Any) -> None:
    p.named.setdefault("a", Account()).tags.append(str(x))


def _last_of_group(p: Any, x: float, ctx: Any) -> None:
    p.shared_items.append(Account(x))
    p.shared_items[-1].total = int(x)


WAYS: Final[list[Callable[[Any, float, Any], None]]] = [
    lambda p, x, ctx: None,
    lambda p, x, ctx: setattr(p, "n", None),
    lambda p, x, ctx: setattr(p, "n", p.n + int(x)),
    lambda p, x, ctx: delattr(p, "n"),
    lambda p, x, ctx: setattr(p, "share", None),
    lambda p, x, ctx: setattr(p, "share", p.share + x),
    _chance,
    lambda p, x, ctx: setattr(p, "name", str(x)),
    lambda p, x, ctx: setattr(p, "name", None),
    lambda p, x, ctx: setattr(p.account, "total", int(x)),
    lambda p, x, ctx: p.account.tags.append(str(x)),
    lambda p, x, ctx: setattr(p, "account", None),
    lambda p, x, ctx: p.floats.append(x),
    lambda p, x, ctx: setattr(p, "floats", (x,)),
    lambda p, x, ctx: setattr(p, "floats", None),
    lambda p, x, ctx: p.brief.append(x),
    lambda p, x, ctx: setattr(p, "brief", None),
    lambda p, x, ctx: setattr(p, "brief_n", p.brief_n + 1),
    lambda p, x, ctx: setattr(p, "brief_n", None),
    lambda p, x, ctx: p.items.append([x]),
    lambda p, x, ctx: p.items[-1].append(x) if len(p.items) else None,
    lambda p, x, ctx: p.items.clear(),
    lambda p, x, ctx: p.plain_items.append(x),
    lambda p, x, ctx: setattr(p, "plain_items", [*p.plain_items[1:], x]),
    _tag,
    lambda p, x, ctx: p.named.pop("a", None),
    lambda p, x, ctx: p.fold.add([x]),
    lambda p, x, ctx: p.fold.clear(),
    lambda p, x, ctx: p.shared.append(x),
    lambda p, x, ctx: setattr(p, "shared_n", None),
    lambda p, x, ctx: setattr(p, "shared_n", p.shared_n + 1),
    _last_of_group,
    lambda p, x, ctx: ctx.set_timer(ctx.now + timedelta(seconds=x), processing=True),
    lambda p, x, ctx: ctx.delete_timer(ctx.now, processing=True),
]


def _raise(p: Any) -> None:
    raise ValueError("poison")


# What fails: the method, or what it leaves in the state.
FAILURES: Final[list[Callable[[Any], None]]] = [
    _raise,
    lambda p: setattr(p, "n", "text"),
    lambda p: setattr(p, "n", 1 << 63),
    lambda p: setattr(p, "name", "\ud800"),
    lambda p: setattr(p.account, "total", "text"),
    lambda p: p.floats.append("text"),
    lambda p: p.brief.append(None) or p.brief.append("text"),
    lambda p: p.named.setdefault("b", Account()).tags.append(1),
    lambda p: p.shared.append("text"),
]
_RECORD = st.tuples(
    st.sampled_from("ab"),
    st.integers(0, len(WAYS) - 1),
    st.sampled_from([0.0, -0.0, 0.1, 2.0]),
    st.just(-1) | st.integers(0, len(FAILURES) - 1),
)
_EPOCHS = st.lists(st.lists(_RECORD, max_size=8), max_size=3)


def run(epochs: list[list[Any]]) -> Harness:
    h = harness(
        Fragile(),
        key="k",
        input="k string, way int, x double, failure int",
        on_error="dead_letter",
        key_groups=1,
    )
    for records in epochs:
        h.send(*records)
        h.advance_clock("1 second")
    return h


@settings(max_examples=60)
@given(_EPOCHS)
def test_state_and_rows_are_as_if_failing_records_had_never_been_there(
    epochs: list[list[Any]],
) -> None:
    dirty = run(epochs)
    clean = run([[r for r in records if r[3] < 0] for records in epochs])

    assert len(dirty.dead_letters) == sum(r[3] >= 0 for rs in epochs for r in rs)
    assert clean.dead_letters == []
    assert dirty.output == clean.output
    assert dirty.side("side") == clean.side("side")
    assert [*dirty._store.scan(b"")] == [*clean._store.scan(b"")]
