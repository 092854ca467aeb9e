"""New code on old state: matched, renamed, widened, migrated, or refused untouched."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import riverlock as rl
from riverlock.core.errors import StateSchemaError, UserCodeError
from riverlock.snapshot.catalog import Catalog
from riverlock.snapshot.verbs.verify import verify
from riverlock.storage.open import open_storage

WORDS = ("a", "b", "a" * 300)
Row = tuple[int, int]


class Old(rl.Process):
    output = "k bigint"
    n = rl.Value("int", default=0)
    price = rl.Value("double")
    gone = rl.Value("string")
    items = rl.List("int")
    counts = rl.Map("string", "int")
    last = rl.Value("bigint", ttl="1 day")
    broadcast = rl.Value("int", scope="group", default=0)

    def on_event(self, e: Any, ctx: Any) -> None:
        self.n += 1
        self.price, self.gone = e.id / 2, "gone"
        self.items.append(e.id)
        if len(self.items) > 4:
            self.items.clear()
        word = WORDS[e.id % 3]
        self.counts[word] = self.counts.get(word, 0) + 1
        self.last = e.id
        self.broadcast += 1
        ctx.set_timer(ctx.now + rl.days(1), processing=True)

    def on_timer(self, at: Any, ctx: Any) -> None: ...


def as_text(price: float) -> str:
    return f"{price:.1f}"


class New(rl.Process):
    output = (
        "k bigint, n bigint, fresh bigint, label string, latest bigint,"
        " items array<bigint>, counts map<string,bigint>, seen bigint"
    )
    n = rl.Value("bigint", default=0)
    label = rl.Value("string", formerly="price", migrate=as_text)
    fresh = rl.Value("bigint", default=0)
    elements = rl.List("bigint", formerly="items")
    by_word = rl.Map("string", "bigint", formerly="counts")
    latest = rl.Value("bigint", ttl="2 days", formerly="last")
    seen = rl.Value("bigint", scope="group", default=0, formerly="broadcast")

    def on_event(self, e: Any, ctx: Any) -> Iterator[Any]:
        self.n += 1
        self.fresh += 1
        self.elements.append(e.id)
        if len(self.elements) > 4:
            self.elements.clear()
        word = WORDS[e.id % 3]
        self.by_word[word] = self.by_word.get(word, 0) + 1
        shown = self.label, self.latest, list(self.elements), dict(self.by_word.items())
        self.latest = e.id
        self.seen += 1
        yield ctx.key, self.n, self.fresh, *shown, self.seen

    def on_timer(self, at: Any, ctx: Any) -> None: ...


class Failing(New):
    """A migration that is wrong, and code that fails before an epoch is decided."""

    label = rl.Value("string", formerly="price", migrate=lambda price: "wrong")

    def on_event(self, e: Any, ctx: Any) -> Iterator[Any]:
        raise ValueError("not yet")


class BadMigration(New):
    label = rl.Value("string", formerly="price", migrate=lambda price: price.nothing)


class Newest(New):
    """The same, once the store has moved on: no more talk of the past."""

    label = rl.Value("string")
    elements = rl.List("bigint")
    by_word = rl.Map("string", "bigint")
    latest = rl.Value("bigint", ttl="2 days")
    seen = rl.Value("bigint", scope="group", default=0)


class Narrow(New):
    n = rl.Value("smallint", default=0)


class Side(rl.Process):
    n = rl.Value("int", default=0)

    def on_event(self, e: Any, ctx: Any) -> None:
        self.n += 1


def flow_of(process: rl.Process, uid: str, rows: int, out: Any = None) -> rl.Flow:
    flow = rl.Flow("upgrade", key_groups=4)
    source = rl.sources.generator({"id": "id"}, rows=rows)
    numbers = flow.read(source, uid="numbers")
    stream = numbers.map(lambda r: (r.id % 7, r.id), "k bigint, id bigint", uid="keys")
    done = stream.key_by("k").process(process, uid=uid)
    if out is not None:
        done.write(out, uid="out")
    if uid == "old":
        stream.key_by("k").process(Side(), uid="side")
    return flow


def expected(rows: int, from_: int) -> Counter[Any]:
    """What ``New`` gives for the rows that come after those of ``Old``."""
    found: Counter[Any] = Counter()
    for k in range(7):
        items: list[int] = []
        counts: Counter[str] = Counter()
        mine = list(range(k, rows, 7))
        price = max(i for i in mine if i < from_) / 2
        for at, number in enumerate(mine):
            items = [] if len(items) == 4 else [*items, number]
            counts[WORDS[number % 3]] += 1
            if number >= from_:
                before = [i for i in mine[:at] if i < from_]
                row = (k, at + 1, at + 1 - len(before), f"{price:.1f}", mine[at - 1])
                found[(*row, tuple(items), tuple(sorted(counts.items())))] += 1
    return found


def shown(rows: list[Any]) -> Counter[Any]:
    return Counter(
        (*r[:5], tuple(r[5]), tuple(sorted(dict(r[6]).items()))) for r in rows
    )


def test_state_follows_the_code_or_is_refused(tmp_path: Path) -> None:
    store = str(tmp_path / "store")
    catalog = Catalog(open_storage(store))
    some: dict[str, Any] = {"execution": "local", "available_now": True}
    some["parallelism"] = 2
    flow_of(Old(), "old", 100).run(store, max_rows_per_epoch=30, **some)
    newest = catalog.resolve(None).epoch
    runs = catalog.newest_run()

    renamed, out = {"old": "new"}, rl.sinks.memory()
    with pytest.raises(StateSchemaError, match="side") as caught:
        flow_of(New(), "new", 200, out).renamed(renamed).run(store, **some)
    assert "flow.retired('side')" in caught.value.hint
    narrow = flow_of(Narrow(), "new", 200, out).renamed(renamed).retired("side")
    with pytest.raises(StateSchemaError, match="n: key value of int"):
        narrow.run(store, **some)
    assert catalog.newest_run() == runs  # refused before anything was claimed

    for process in (BadMigration(), Failing()):
        flow = flow_of(process, "new", 200, out).renamed(renamed).retired("side")
        with pytest.raises(UserCodeError):
            flow.run(store, **some)
    assert catalog.resolve(None).epoch == newest

    flow = flow_of(New(), "new", 150, out).renamed(renamed).retired("side")
    flow.run(store, max_rows_per_epoch=20, **some)
    flow_of(Newest(), "new", 200, out).run(store, **{**some, "parallelism": 3})

    assert shown(out.rows()) == expected(200, 100)
    assert max(row[7] for row in out.rows()) > 100 / 4  # went on, per key group
    assert set(catalog.resolve(None).operators) == {"new"}
    assert catalog.resolve(None).operators["new"].timers.processing_us is not None
    assert "side" in catalog.manifest(newest).operators
    assert all(report.is_whole for report in verify(catalog))
    # Each epoch has records of all keys; until `newest` the operator was `old`.
    touched = rl.stores.touches(store, "new", "0")
    assert [(t.first, t.last) for t in touched] == [(e, e) for e in catalog.epochs()]
    assert all(t.inputs for t in touched)

    # A uid that is used again begins without state, whatever copies there are.
    again = rl.sinks.memory()
    flow = flow_of(New(), "old", 300, again).retired("new", "numbers")
    flow.run(store, **some)
    assert min(row[1] for row in again.rows()) == 1
    touched = rl.stores.touches(store, "old", "0")
    assert [t.first for t in touched] == catalog.epochs()[-1:]
