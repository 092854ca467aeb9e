"""State of users' own classes: compared by bytes, whatever their equality says."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import pytest

from riverlock.program.process import Process
from riverlock.state.spec import List, Map, Reducing, Value
from riverlock.testing import Harness, harness

INPUT = "k string, x double"


class AskedError(BaseException):
    """No handler of the engine takes it for an error of user code."""


@dataclass
class Account:
    """One that may not be compared, hashed or asked whether it is true."""

    owner: str = ""
    total: float = 0.0

    def __eq__(self, other: object) -> bool:
        raise AskedError

    def __ne__(self, other: object) -> bool:
        raise AskedError

    def __hash__(self) -> int:
        raise AskedError

    def __bool__(self) -> bool:
        raise AskedError

    def more(self, x: float) -> Account:
        return Account(self.owner, self.total + x)


def summed(old: Account, new: Account) -> Account:
    old.total += new.total
    return old


class Everywhere(Process):
    """Has an account in every kind of state."""

    output = "k string, total double"
    plain = Value(Account)
    lent = Value(Account, default=Account("lent"))
    many = Value("array<struct<owner:string,total:double>>", default=[])
    brief = Value(Account, ttl="1 day")
    brief_lent = Value(Account, default=Account("brief"), ttl="1 day")
    items = List(Account)
    brief_items = List(Account, ttl="1 day")
    named = Map("string", Account)
    brief_named = Map("string", Account, ttl="1 day")
    folded = Reducing(Account, summed)
    brief_folded = Reducing(Account, summed, ttl="1 day")
    of_group = Value(Account, default=Account("group"), scope="group")
    group_items = List(Account, scope="group")
    group_named = Map("string", Account, scope="group")
    of_all = Value(Account, default=Account("all"), scope="broadcast")
    all_items = List(Account, scope="broadcast")
    all_named = Map("string", Account, scope="broadcast")

    def on_initial(self, record: Any, ctx: Any) -> None:
        self.plain = Account("initial", record.x)
        self.items = [Account("initial", record.x)]

    def on_broadcast(self, record: Any, ctx: Any) -> None:
        self.of_all.total += record.x
        self.all_items = [*self.all_items, Account("all", record.x)]
        self.all_named["a"] = Account("all", record.x)

    def on_event(self, record: Any, ctx: Any) -> Iterator[Any]:
        x = record.x
        self.plain = Account("plain", x) if self.plain is None else self.plain.more(x)
        self.lent.total += x
        self.many.append(Account("many", x))
        self.brief = Account("brief", x) if self.brief is None else self.brief.more(x)
        self.brief_lent.total += x
        for items in (self.items, self.brief_items, self.group_items):
            if len(items):
                items[0].total += x
            else:
                items.append(Account("items", x))
        self.items = [self.items[0].more(0.5)]
        for named in (self.named, self.brief_named, self.group_named):
            named.setdefault("a", Account("named")).total += x
            named["b"] = named["a"].more(1)
        self.folded.add(Account("folded", x))
        self.brief_folded.add(Account("folded", x))
        self.of_group.total += x
        if x > 100:
            ctx.set_timer(ctx.now, processing=True)
        yield record.k, self.lent.total

    def on_timer(self, at: Any, ctx: Any) -> None:
        self.plain = self.plain.more(1000)
        self.items = [self.items[0].more(1000)]


PER_KEY = ("plain", "lent", "brief", "brief_lent", "folded", "brief_folded", "of_group")
LISTS = ("items", "brief_items", "group_items", "many")
MAPS = ("named", "brief_named", "group_named")


def shown(h: Harness) -> dict[str, Any]:
    """Return all state of the key as plain values."""
    found: dict[str, Any] = {n: _plain(h.state(n, key="a")) for n in PER_KEY}
    found |= {n: [_plain(v) for v in h.state(n, key="a") or ()] for n in LISTS}
    for name in MAPS:
        found[name] = {k: _plain(v) for k, v in h.state(name, key="a").items()}
    found["of_all"] = _plain(h.state("of_all"))
    found["all_items"] = [_plain(v) for v in h.state("all_items")]
    found["all_named"] = {k: _plain(v) for k, v in h.state("all_named").items()}
    return found


def _plain(value: Any) -> Any:
    return None if value is None else (value.owner, value.total)


def made(**options: Any) -> Harness:
    return harness(
        Everywhere(),
        key="k",
        input=INPUT,
        initial=INPUT,
        broadcast=INPUT,
        **options,
    )


@pytest.mark.parametrize("on_error", ["fail", "dead_letter"])
@pytest.mark.parametrize("is_one_epoch", [True, False])
def test_no_kind_of_state_asks_an_object_for_equality(
    on_error: str, is_one_epoch: bool
) -> None:
    h = made(on_error=on_error)
    records = [("a", 1.0), ("a", 2.0), ("a", 4.0)]
    h.broadcast(("", 1.0))
    h.broadcast(("", 2.0))

    for part in [records] if is_one_epoch else [[r] for r in records]:
        h.send(*part)

    assert [total for _, total in h.output] == [1.0, 3.0, 7.0]
    assert h.dead_letters == []
    assert shown(h) == {
        "plain": ("plain", 7.0),
        "lent": ("lent", 7.0),
        "many": [("many", 1.0), ("many", 2.0), ("many", 4.0)],
        "brief": ("brief", 7.0),
        "brief_lent": ("brief", 7.0),
        "items": [("items", 8.5)],
        "brief_items": [("items", 7.0)],
        "named": {"a": ("named", 7.0), "b": ("named", 8.0)},
        "brief_named": {"a": ("named", 7.0), "b": ("named", 8.0)},
        "folded": ("folded", 7.0),
        "brief_folded": ("folded", 7.0),
        "of_group": ("group", 7.0),
        "group_items": [("items", 7.0)],
        "group_named": {"a": ("named", 7.0), "b": ("named", 8.0)},
        "of_all": ("all", 3.0),
        "all_items": [("all", 1.0), ("all", 2.0)],
        "all_named": {"a": ("all", 2.0)},
    }


def test_neither_timers_nor_initial_rows_nor_restarts_ask_for_it() -> None:
    h = made()
    h.initial(("a", 5.0))
    h.send(("a", 200.0))
    h.advance_clock("1 minute")
    h = h.restart(h.snapshot())
    h.send(("a", 1.0))

    assert shown(h)["plain"] == ("initial", 1206.0)
    assert shown(h)["items"] == [("initial", 1207.0)]


class Only(Process):
    """The loop over keys whose records are all there is."""

    account = Value(Account)
    other = Value(Account, default=Account("other"))

    def on_event(self, record: Any, ctx: Any) -> None:
        if record.x < 0:
            self.account = None
            del self.other
        else:
            self.account = Account("account", record.x)
            self.other.total += record.x


def test_the_loop_over_keys_tells_unset_state_without_asking_it() -> None:
    h = harness(Only(), key="k", input=INPUT)
    h.send(("a", 1.0), ("b", 2.0))
    h.send(("a", -1.0), ("b", 1.0), ("c", 3.0))

    found = {k: _plain(h.state("account", key=k)) for k in "abc"}
    assert found == {"a": None, "b": ("account", 1.0), "c": ("account", 3.0)}
    assert _plain(h.state("other", key="b")) == ("other", 3.0)
    assert h.keys() == ["b", "c"]


@dataclass
class Balance:
    owner: str = ""
    total: float = field(default=0.0, compare=False)  # no part of its identity


class InPlace(Process):
    output = "k string, total double"
    balance = Value(Balance, default=Balance())

    def on_event(self, record: Any, ctx: Any) -> Iterator[Any]:
        self.balance.total += record.x
        yield record.k, self.balance.total


class Assigned(InPlace):
    def on_event(self, record: Any, ctx: Any) -> Iterator[Any]:
        self.balance = Balance("", self.balance.total + record.x)
        yield record.k, self.balance.total


class Listed(InPlace):
    items = List(Balance)

    def on_event(self, record: Any, ctx: Any) -> Iterator[Any]:
        old = self.items[0].total if len(self.items) else 0.0
        self.items = [Balance("o", old + record.x)]
        yield record.k, self.items[0].total


@pytest.mark.parametrize("process", [InPlace, Assigned, Listed])
def test_fields_that_take_no_part_in_equality_are_kept(process: type[Process]) -> None:
    h = harness(process(), key="k", input=INPUT)
    for x in (1.0, 2.0, 4.0):
        h.send(("a", x))

    assert [total for _, total in h.output] == [1.0, 3.0, 7.0]


class Zero(Process):
    numbers = List("double")

    def on_event(self, record: Any, ctx: Any) -> None:
        self.numbers = [record.x]


def test_a_list_takes_a_negative_zero_for_a_zero() -> None:
    h = harness(Zero(), key="k", input=INPUT)
    h.send(("a", 0.0))
    h.send(("a", -0.0))

    assert repr(h.state("numbers", key="a")) == "[-0.0]"


class Renewed(Process):
    names = List("string", ttl="1 hour")

    def on_event(self, record: Any, ctx: Any) -> None:
        if record.x:
            self.names = ["x", "y"]
        else:
            self.names += ["z"]


def test_a_list_that_is_assigned_again_lives_anew() -> None:
    h = harness(Renewed(), key="k", input=INPUT)
    h.send(("a", 1.0))
    h.clock.advance(timedelta(minutes=50))
    h.send(("a", 1.0))
    h.clock.advance(timedelta(minutes=50))

    assert h.state("names", key="a") == ["x", "y"]


def test_a_list_that_is_appended_to_keeps_the_lives_of_its_elements() -> None:
    h = harness(Renewed(), key="k", input=INPUT)
    h.send(("a", 1.0))
    h.clock.advance(timedelta(minutes=50))
    h.send(("a", 0.0))
    h.clock.advance(timedelta(minutes=50))

    assert h.state("names", key="a") == ["z"]
