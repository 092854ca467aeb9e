"""Two flows over three Structured Streaming queries, and what a cut says of them.

The queries *old* and *new* are landed in the flow *debits*, which takes the money of
both and publishes it. The query *cash* is landed in the flow *credits*, which reads
what was published, too. Usage: python -m tests.chaos.landed_flow NAME ROOT
"""

from __future__ import annotations

import sys
from typing import Any

import pyarrow.parquet as pq
from tests.unit.driver.ledger_flow import COLUMNS, Credit, Debit, total
from tests.unsynced import without_sync

import riverlock as rl
from riverlock.snapshot.catalog import Catalog
from riverlock.snapshot.format.channels import Channel
from riverlock.snapshot.format.records import Named
from riverlock.storage.open import open_storage

FLOWS = ("debits", "credits")
# The queries that are landed in each flow.
QUERIES = {"debits": ("old", "new"), "credits": ("cash",)}


def landed(root: str, query: str) -> Any:
    """Return a Structured Streaming query over a directory, landed."""

    def build(spark: Any) -> Any:
        files = spark.readStream.schema(COLUMNS).option("maxFilesPerTrigger", 1)
        return files.json(f"{root}/in/{query}")

    return rl.sources.spark_stream(build, channel=query)


def flow_of(name: str, root: str) -> rl.Flow:
    """Return one of the flows."""
    flow = rl.Flow(name, key_groups=4)
    first, *others = [flow.read(landed(root, q), uid=q) for q in QUERIES[name]]
    if name == "debits":
        both = first.union(*others).key_by("source")
        both.process(Debit(), uid="debit").publish("sent")
        return flow
    first.key_by("target").process(Credit(), uid="cash-in")
    sent = rl.sources.channel(f"{root}/debits", "sent", timed=False)
    given = flow.read(sent, uid="sent-there").key_by("target")
    given.process(Credit(), uid="credit")
    return flow


def money_landed(root: str, name: str, epoch: int) -> int:
    """Return the money in the segments that an epoch of a flow has read."""
    storage, found = open_storage(f"{root}/{name}"), 0
    inputs = Catalog(storage).manifest(epoch).inputs
    for query in QUERIES[name]:
        for number in range(inputs[query].end["segment"]):
            segment = Channel(storage, query).segment(number)
            assert segment is not None
            for file in segment.files:
                path = storage.local_path(file["path"])
                found += sum(pq.read_table(path)["amount"].to_pylist())
    return found


def check(root: str, found: tuple[Named, ...]) -> None:
    """Check that a cut has what was landed up to it, in each flow, and no more."""
    debits, credits = found
    name = debits.name
    sent = total(f"{root}/debits", name, "debit", "sent")
    cash = total(f"{root}/credits", name, "cash-in", "received")
    assert sent == money_landed(root, "debits", debits.regions["main"])
    assert cash == money_landed(root, "credits", credits.regions["main"])
    received = total(f"{root}/credits", name, "credit", "received")
    assert sent == received + in_flight(f"{root}/debits", debits)


def in_flight(store: str, named: Named) -> int:
    """Return the money between the two flows in a snapshot."""
    storage, found = open_storage(store), 0
    for span in named.in_flight:
        for epoch in range(span.first, span.end):
            manifest = Catalog(storage).manifest(epoch)
            for token in manifest.outputs["sent"].tokens:
                path = storage.local_path(token["path"])
                found += sum(pq.read_table(path)["amount"].to_pylist())
    return found


def main() -> None:
    """Run until the process is asked to stop."""
    without_sync()
    name, root = sys.argv[1:]
    flow_of(name, root).run(f"{root}/{name}", parallelism=1)


if __name__ == "__main__":
    main()
