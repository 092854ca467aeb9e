"""One stream into two regions: *strict* is exactly once, *loose* what a test says.

Both run the same process, which counts events by key and repeats each by a timer five
seconds later. The rows of *loose* are appended to a file, row by row, so that what has
left has left; those of *strict* go to a file sink. What each must be is plain Python.
"""

from __future__ import annotations

import json
import os
import signal
import sqlite3
from collections import Counter
from contextlib import closing
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

import riverlock as rl
from riverlock.core.guarantees import Guarantee
from riverlock.snapshot.catalog import Catalog
from riverlock.snapshot.format.records import Named
from riverlock.storage.open import open_storage
from riverlock.testing import rows

COLUMNS = "n long, key string, at timestamp"
START = datetime(2026, 1, 1, tzinfo=UTC)
LATER = 5  # seconds until an event is repeated
LOOSE = "loose"

Row = tuple[str, int]


class Repeat(rl.Process):
    """Emits each event at once, and once more when its timer fires."""

    output = "kind string, n long"
    count = rl.Value("long", default=0)
    total = rl.Value("long", default=0)

    def on_event(self, event: Any, ctx: rl.Context) -> Any:
        self.count += 1
        self.total += event.n
        ctx.set_timer(event.at + timedelta(seconds=LATER))
        yield "event", event.n

    def on_timer(self, at: datetime, ctx: rl.Context) -> Any:
        yield "timer", round((at - START).total_seconds()) - LATER


def events(count: int) -> list[tuple[int, str, datetime]]:
    """Return events, the same each time; more of them begin with the same."""
    return [(n, f"k{n % 5}", START + timedelta(seconds=n)) for n in range(count)]


def append(path: str, dies_at: int, row: dict[str, Any], _id: str) -> None:
    """Write a row to the end of a file; die behind one, the first time."""
    file = Path(path)
    with file.open("a") as out:
        out.write(json.dumps([row["kind"], row["n"]]) + "\n")
    fuse = file.with_suffix(".fuse")
    if dies_at and len(file.read_text().splitlines()) >= dies_at and not fuse.exists():
        fuse.touch()
        os.kill(os.getpid(), signal.SIGKILL)


def flow_of(
    count: int, out: Path, guarantee: Guarantee, *, dies_at: int = 0, **strict: Any
) -> rl.Flow:
    """Return the flow over the first events."""
    flow = rl.Flow("guarantees", key_groups=8)
    read = flow.read(rows(COLUMNS, events(count)), uid="events").event_time(
        "at", delay="0 seconds", uid="time"
    )
    loose = read.region(LOOSE, guarantee=guarantee, uid="to-loose")
    repeated = loose.key_by("key").process(Repeat(), uid="repeat-loose")
    repeated.write(
        rl.sinks.for_each_row(partial(append, str(out / "loose.jsonl"), dies_at)),
        uid="out-loose",
    )
    repeated.write(rl.sinks.files(str(out / LOOSE), format="json"), uid="files-loose")
    table = rl.sinks.sql(f"sqlite:///{out}/loose.db", table="t", create=True)
    repeated.write(table, uid="table-loose")
    same = read.region("strict", uid="to-strict")
    same.key_by("key").process(Repeat(), uid="repeat-strict").write(
        strict.get("sink", rl.sinks.files(str(out / "strict"), format="json")),
        uid="out-strict",
    )
    return flow


def perfect(count: int) -> Counter[Row]:
    """Return what a run without failures emits."""
    # The watermark comes to just before the last event.
    fired = range(max(0, count - 1 - LATER))
    return Counter([("event", n) for n in range(count)] + [("timer", n) for n in fired])


def left(out: Path) -> Counter[Row]:
    """Return what has left *loose*, each row as often as it did."""
    path = out / "loose.jsonl"
    lines = path.read_text().splitlines() if path.exists() else []
    return Counter((kind, n) for kind, n in map(json.loads, lines))


def in_table(out: Path) -> Counter[Row]:
    """Return what has left *loose* for a database."""
    if not (out / "loose.db").exists():
        return Counter()
    with closing(sqlite3.connect(out / "loose.db")) as database:
        return Counter(database.execute("SELECT kind, n FROM t").fetchall())


def in_files(out: Path, region: str) -> Counter[Row]:
    """Return what has left a region for files."""
    every = (out / region).glob("**/*.json")
    files = [file for file in every if "_riverlock" not in file.parts]
    found = [json.loads(line) for f in files for line in f.read_text().splitlines()]
    return Counter((row["kind"], row["n"]) for row in found)


def state(store: str, operator: str) -> dict[str, tuple[int, int]]:
    """Return how many events a region has seen of each key, and their sum."""
    found = rl.open(store).state(operator).to_arrow().to_pylist()
    return {row["key"]: (row["count"], row["total"]) for row in found}


def state_after(numbers: list[int]) -> dict[str, tuple[int, int]]:
    """Return the same after these events, computed in plain Python."""
    found: dict[str, tuple[int, int]] = {}
    for n in numbers:
        many, total = found.get(f"k{n % 5}", (0, 0))
        found[f"k{n % 5}"] = many + 1, total + n
    return found


def processed(store: str) -> tuple[list[int], int]:
    """Return the events that the epochs of *loose* have read, and how many not."""
    storage = open_storage(store)
    numbers, skipped = [], 0
    catalog = Catalog(storage, LOOSE)
    for epoch in catalog.epochs():
        read = catalog.manifest(epoch).inputs["to-loose-read"]
        skipped += read.skipped or 0
        for written in range(read.start["epoch"], read.end["epoch"]):
            manifest = Catalog(storage).manifest(written)
            for token in manifest.outputs["to-loose"].tokens:
                path = storage.local_path(token["path"])
                numbers += pq.read_table(path)["n"].to_pylist()
    return numbers, skipped


def balance(store: str, named: Named) -> tuple[int, int]:
    """Return what *main* has handed on in a snapshot, and where it is accounted for.

    It is in the state of *loose*, in flight to it, or was left out.
    """
    storage = open_storage(store)
    handed_on = Catalog(storage).manifest(named.regions["main"]).inputs["events"].end
    catalog, skipped = Catalog(storage, LOOSE), 0
    for epoch in range(named.regions[LOOSE] + 1):
        skipped += catalog.manifest(epoch).inputs["to-loose-read"].skipped or 0
    at = rl.open(store).at(named.name).state("repeat-loose").to_arrow().to_pylist()
    flying = sum(each.rows for each in named.in_flight if each.channel == "to-loose")
    return handed_on, sum(row["count"] for row in at) + flying + skipped
