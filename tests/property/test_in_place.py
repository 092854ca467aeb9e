"""What is changed in place does not depend on where epochs end."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Final

from hypothesis import given, settings
from hypothesis import strategies as st

from riverlock.program.process import Process
from riverlock.state.spec import List, Map, Reducing, Value
from riverlock.testing import harness


@dataclass
class Account:
    total: float = 0.0
    tags: list[str] = field(default_factory=list)
    rest: Decimal | None = None


def kept(old: list[float], new: list[float]) -> list[float]:
    old.extend(new)
    return old


class Odd(Process):
    """Changes state in place, each record in another way."""

    output = "seen string"
    singles = Value("array<float>", default=[])
    nested = Value("array<array<int>>", default=[[1]])
    amounts = Value("map<string,double>", default={})
    account = Value(Account, default=Account())
    late = Value("array<float>", ttl="1 day", default=[])
    items = List("array<float>")
    accounts = Map("string", Account)
    fold = Reducing("array<float>", kept)
    shared = Value("array<float>", default=[], scope="group")
    shared_items = List(Account, scope="group")

    def on_event(self, record: Any, ctx: Any) -> Iterator[Any]:
        WAYS[record.way](self, record.x)
        everything = (
            self.singles,
            self.nested,
            self.amounts,
            self.account,
            vars(self.account),
            self.late,
            list(self.items),
            dict(self.accounts),
            self.fold.value,
            self.shared,
            list(self.shared_items),
        )
        yield (repr(everything),)


def _alias(p: Any, x: float) -> None:
    p.nested = [p.nested[0], p.nested[0]]


def _undeclared(p: Any, x: float) -> None:
    p.account.note = x


def _account(p: Any, x: float) -> None:
    p.accounts.setdefault("a", Account()).tags.append(str(x))


def _every(p: Any, x: float) -> None:
    for each in p.items:
        each.append(x)


def _totals(p: Any, x: float) -> None:
    for each in p.accounts.values():
        each.total = 1


def _held(p: Any, x: float) -> None:
    first = next(iter(p.shared_items), None)
    if first is None:
        p.shared_items.append(Account(total=x))
    else:
        first.total = int(x)


WAYS: Final[list[Callable[[Any, float], None]]] = [
    lambda p, x: p.singles.append(x),
    lambda p, x: p.singles.insert(0, int(x * 10)),
    lambda p, x: setattr(p, "singles", (*p.singles, x)),
    lambda p, x: p.nested.append((int(x), 2)),
    lambda p, x: p.nested[0].append(3),
    _alias,
    lambda p, x: p.amounts.update(n=int(x * 10)),
    lambda p, x: p.amounts.clear(),
    lambda p, x: setattr(p.account, "total", int(x * 10)),
    lambda p, x: setattr(p.account, "rest", int(x)),
    lambda p, x: setattr(p.account, "tags", p.account.tags),
    lambda p, x: p.account.tags.append("x"),
    _undeclared,
    lambda p, x: p.late.append(x),
    lambda p, x: p.items.append([x]),
    _every,
    lambda p, x: p.items[-1].append(x) if len(p.items) else None,
    lambda p, x: setattr(p, "items", [*p.items, p.singles]),
    _account,
    _totals,
    lambda p, x: p.fold.add([x, int(x)]),
    lambda p, x: p.shared.append(x),
    _held,
]
_WAY = st.integers(0, len(WAYS) - 1)
_X = st.sampled_from([0.1, -0.0, 0.0, 2.0, 1e3])
_STEPS = st.lists(st.tuples(_WAY, _X, st.booleans()), min_size=1, max_size=12)


def seen(steps: list[tuple[int, float, bool]], how: str, **options: Any) -> list[Any]:
    h = harness(Odd(), key="k", input="k string, way int, x double", **options)
    epochs: list[list[Any]] = [[]]
    for way, x, cut in steps:
        epochs[-1].append(("a", way, x))
        if how == "each" or (how == "some" and cut):
            epochs.append([])
    for records in epochs:
        h.send(*records)
    return [*h.output, repr({n: h.state(n, key="a") for n in ("items", "late")})]


@settings(max_examples=50)
@given(_STEPS)
def test_results_do_not_depend_on_where_epochs_end(
    steps: list[tuple[int, float, bool]],
) -> None:
    expected = seen(steps, "each")

    assert seen(steps, "one") == expected
    assert seen(steps, "some") == expected
    assert seen(steps, "one", on_error="dead_letter") == expected
