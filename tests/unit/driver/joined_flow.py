"""Money that moves between accounts, over three flows with a store each.

*debits* takes it and publishes what it took. *east* and *west* read that channel, each
gives its half of the money; *west* also counts what *east* has given, over a channel of
its own. So a flow is read by two, and reads two others. In every consistent cut, what
was debited is what was credited plus what is in flight.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import pyarrow.parquet as pq
from tests.unit.driver.ledger_flow import COLUMNS, Credit, Debit, is_for, total

import riverlock as rl
from riverlock.snapshot.catalog import Catalog
from riverlock.snapshot.format.records import Named
from riverlock.storage.open import open_storage
from riverlock.testing import rows

FLOWS = ("debits", "east", "west")


class Seen(rl.Process):
    """Counts what another flow has given."""

    total = rl.Value("long", default=0)

    def on_event(self, given: Any, ctx: rl.Context) -> Any:
        self.total += given.amount


def debits(given: list[Any]) -> rl.Flow:
    """Return the flow that takes money."""
    flow = rl.Flow("debits", key_groups=8)
    read = flow.read(rows(COLUMNS, given), uid="transfers")
    read.key_by("source").process(Debit(), uid="debit").publish("sent")
    return flow


def half(name: str, root: str) -> rl.Flow:
    """Return the flow that gives one half of the money."""
    flow = rl.Flow(name, key_groups=8)
    sent = flow.read(
        rl.sources.channel(f"{root}/debits", "sent", timed=False), uid="sent-there"
    )
    mine = sent.filter(partial(is_for, name), uid=f"is-{name}").key_by("target")
    credited = mine.process(Credit(), uid=f"credit-{name}")
    if name == "east":
        credited.publish("given")
        return flow
    east = rl.sources.channel(f"{root}/east", "given", timed=False)
    counted = flow.read(east, uid="given-there").region("count", uid="to-count")
    counted.key_by("target").process(Seen(), uid="seen")
    return flow


def flow_of(name: str, root: str, given: list[Any]) -> rl.Flow:
    """Return one of the flows, with its store below a directory."""
    return debits(given) if name == "debits" else half(name, root)


def in_flight(store: str, named: Named, channel: str) -> int:
    """Return the money of a channel that a snapshot has in flight, for each reader."""
    storage, found = open_storage(store), 0
    for span in named.in_flight:
        if span.channel != channel:
            continue
        for epoch in range(span.first, span.end):
            manifest = Catalog(storage, span.writer).manifest(epoch)
            for token in manifest.outputs[channel].tokens:
                path = storage.local_path(token["path"])
                table = pq.read_table(path).to_pylist()
                found += sum(r["amount"] for r in table if _counts(r, span, storage))
    return found


def _counts(row: dict[str, Any], span: Any, storage: Any) -> bool:
    """Of two readers of all rows, each has its own in flight."""
    reader = rl.open(flow_stores(storage)[span.flow]).flow if span.flow else ""
    target = row["target"]
    return reader == "" or is_for(reader, type("Row", (), {"target": target}))


def flow_stores(storage: Any) -> dict[str, str]:
    """Return the stores beside one, by the id of their flow."""
    root = storage.uri.rsplit("/", 1)[0]
    return {
        Catalog(open_storage(f"{root}/{name}")).flow().id: f"{root}/{name}"
        for name in FLOWS
    }


def balance(root: str, found: dict[str, Named]) -> tuple[int, int]:
    """Return what was debited in a snapshot, and what was credited or is in flight."""
    name = found["debits"].name
    credited = sum(
        total(f"{root}/{half}", name, f"credit-{half}", "received")
        for half in ("east", "west")
    )
    flying = in_flight(f"{root}/debits", found["debits"], "sent")
    return total(f"{root}/debits", name, "debit", "sent"), credited + flying


def second_balance(root: str, found: dict[str, Named]) -> tuple[int, int]:
    """Return what *east* has given, and what *west* has seen of it or is in flight."""
    name = found["debits"].name
    given = total(f"{root}/east", name, "credit-east", "received")
    seen = total(f"{root}/west", name, "seen", "total")
    storage = open_storage(f"{root}/east")
    flying = 0
    for place, spans in (("east", found["east"]), ("west", found["west"])):
        storage = open_storage(f"{root}/{place}")
        for span in spans.in_flight:
            for epoch in range(span.first, span.end):
                manifest = Catalog(storage, span.writer).manifest(epoch)
                for token in manifest.outputs[span.channel].tokens:
                    path = storage.local_path(token["path"])
                    flying += sum(pq.read_table(path)["amount"].to_pylist())
    return given, seen + flying
