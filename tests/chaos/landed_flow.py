"""Two flows that read landed Structured Streaming queries, and share a channel.

*debits* lands two queries, takes money from accounts by their rows, and publishes what
it took. *credits* reads that channel, and lands a third query: refunds, which are taken
from accounts there. It gives all of it to accounts in a region of its own. So three
queries of Spark, over two applications, are under one cut. What is debited by the
segments that a cut says is in state, and in no other way.

Usage: python -m tests.chaos.landed_flow NAME ROOT
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from tests.unit.driver.ledger_flow import COLUMNS, Credit, Debit, total, transfers
from tests.unsynced import without_sync

import riverlock as rl
from riverlock.snapshot.catalog import Catalog
from riverlock.snapshot.format.channels import Channel
from riverlock.snapshot.format.records import Named
from riverlock.storage.open import open_storage

# The first one decides about cuts.
FLOWS = ("debits", "credits")
QUERIES = {"debits": ("cash", "cards"), "credits": ("refunds",)}


def _read(root: str, query: str, session: Any) -> Any:
    """Return a query of Spark: it knows nothing of us."""
    given = session.readStream.schema(COLUMNS.replace("long", "bigint"))
    return given.json(f"{root}/in/{query}").where("amount > 0")


def landed(flow: rl.Flow, root: str, query: str) -> rl.Stream:
    """Read a query in a flow."""
    build = partial(_read, root, query)
    return flow.read(rl.sources.spark_stream(build, channel=query), uid=query)


def flow_of(name: str, root: str) -> rl.Flow:
    """Return one of the flows, with its store below a directory."""
    flow = rl.Flow(name, key_groups=8)
    first, *others = (landed(flow, root, query) for query in QUERIES[name])
    debited = first.union(*others).key_by("source").process(Debit(), uid=name)
    if name == "debits":
        debited.publish("sent")
        return flow
    there = rl.sources.channel(f"{root}/debits", "sent", timed=False)
    sent = flow.read(there, uid="sent-there").region("accounts", uid="to-accounts")
    arriving = sent.union(debited.region("accounts", uid="refunded"))
    arriving.key_by("target").process(Credit(), uid="credit")
    return flow


def add(root: str, number: int) -> None:
    """Add a file of transfers to the input of each query."""
    names = ("source", "target", "amount")
    for place, query in enumerate(q for mine in QUERIES.values() for q in mine):
        given = transfers(20 + number + place)
        lines = [json.dumps(dict(zip(names, row, strict=True))) for row in given]
        path = Path(root, "in", query, f"{number:03d}.json")
        path.parent.mkdir(parents=True, exist_ok=True)
        aside = path.with_name(f".{path.name}")
        aside.write_text("\n".join(lines) + "\n")
        aside.rename(path)


def has_read(root: str) -> bool:
    """Tell whether an epoch has read something of each query."""
    newest = [Catalog(open_storage(f"{root}/{name}")).newest() for name in FLOWS]
    return all(
        manifest is not None
        and all(manifest.inputs[query].end["segment"] for query in QUERIES[name])
        for name, manifest in zip(FLOWS, newest, strict=True)
    )


def check(root: str, found: Sequence[Named]) -> None:
    """Check that the cut is consistent, and has exactly the segments that it says."""
    debited = 0
    for name, named in zip(FLOWS, found, strict=True):
        store = f"{root}/{name}"
        taken = total(store, named.name, name, "sent")
        catalog = Catalog(open_storage(store))
        inputs = catalog.manifest(named.regions["main"]).inputs
        landed = [
            sum(_segments(store, query, inputs[query].end["segment"]))
            for query in QUERIES[name]
        ]
        assert all(landed), (name, landed)
        assert taken == sum(landed), (name, landed)
        debited += taken
    credits = f"{root}/credits"
    credited = total(credits, found[1].name, "credit", "received")
    on_way = [_in_flight(f"{root}/{n}", s) for n, s in zip(FLOWS, found, strict=True)]
    assert debited == credited + sum(on_way), (debited, credited, on_way)


def _segments(store: str, query: str, count: int) -> Iterator[int]:
    """Give the money of the first segments of a channel."""
    storage = open_storage(store)
    channel = Channel(storage, query)
    for number in range(count):
        segment = channel.segment(number)
        assert segment is not None
        for file in segment.files:
            yield _money(storage, file["path"])


def _in_flight(store: str, named: Named) -> int:
    """Return the money in all channels of a store in a snapshot."""
    storage = open_storage(store)
    return sum(
        _money(storage, token["path"])
        for span in named.in_flight
        for epoch in range(span.first, span.end)
        for token in Catalog(storage, span.writer)
        .manifest(epoch)
        .outputs[span.channel]
        .tokens
    )


def _money(storage: Any, path: str) -> int:
    return sum(pq.read_table(storage.local_path(path))["amount"].to_pylist())


def main() -> None:
    """Run until the process is asked to stop."""
    without_sync()  # a killed process loses nothing that the system has
    name, root = sys.argv[1:]
    for query in QUERIES[name]:
        Path(root, "in", query).mkdir(parents=True, exist_ok=True)
    spark = rl.spark_session(name, master="local[2,4]")
    flow_of(name, root).run(f"{root}/{name}", spark=spark, parallelism=1)


if __name__ == "__main__":
    main()
