"""How ``stores/v1-full`` was made: a store with most of what a store can have.

    python -m tests.compat.frozen DIRECTORY

``parent`` has operators with values, lists, maps, time to live, group and broadcast
state, timers, windows and sessions, a channel, merged files, files in parts, names, a
parameter that was set and a change of parallelism. ``fork`` refers to files of it and
went on. ``expected.json`` is what they hold: of ``everything`` as plain Python computed
it, of the rest as this version read it, after the checks below.

Host names and places are those of nobody: ``thawed`` puts the place in again.
"""

from __future__ import annotations

import json
import shutil
import socket
import sys
from collections import Counter
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from click.testing import CliRunner
from pyspark.sql import SparkSession
from tests.compat.everything import (
    BEGIN,
    COLUMNS,
    GROUPS,
    LIMITS,
    Everything,
    Model,
    plain,
)
from tests.compat.reader import read

import riverlock as rl
from riverlock.cli import main
from riverlock.core.clock import ManualClock
from riverlock.core.times import micros
from riverlock.driver import cleaner
from riverlock.query.opened_store import Store
from riverlock.snapshot.format import parts, state_files
from riverlock.snapshot.format.sealed import checksum
from riverlock.snapshot.retention.compaction import choose
from riverlock.spark.session import local_session

NOWHERE, NOBODY = "/stores", "host"
ROWS, PER_EPOCH, FORKED_ROWS = 400, 50, 120


class Scaled(rl.Process):
    """Keeps a number for each of many keys."""

    output = "id long"
    factor = rl.Param(1)
    scaled = rl.Value("bigint", default=0)

    def on_event(self, row: Any, ctx: Any) -> Any:
        self.scaled = row.id * self.factor
        yield row.id


def flow_of(folder: Path, rows: int) -> rl.Flow:
    """Return the flow; lines are of the files of a folder."""
    flow = rl.Flow("full", key_groups=GROUPS)
    out = rl.sinks.memory()
    events = flow.read(rl.sources.generator(COLUMNS, rows=rows), uid="rows")
    limits = flow.read(rl.sources.generator(LIMITS, rows=3), uid="limits")
    timed = events.event_time("at")
    keyed = timed.key_by("k")
    keyed.process(Everything(), uid="everything", broadcast=limits).write(out)
    minutes = keyed.window(rl.sliding("2 minutes", "1 minute"))
    minutes.agg(total="sum(id)", uid="minutes").write(out)
    keyed.window(rl.sessions("10 minutes")).count(uid="sessions").write(out)
    timed.key_by("id").process(Scaled(), uid="many").write(out)

    def build(session: SparkSession) -> Any:
        return session.readStream.format("text").load(str(folder))

    lines = flow.read(rl.sources.spark_stream(build, channel="lines"), uid="lines")
    lines.key_by("value").count(uid="words").write(out)
    return flow


def contents(store: Store) -> dict[str, Any]:
    """Return all that a store says, as JSON has it."""
    found: dict[str, Any] = {
        "names": {named.name: named.epoch for named in store.snapshots()},
        "channels": {n: rows_of(store.channel(n)) for n in store.channels()},
        "epochs": {},
    }
    for epoch in store.epochs():
        snapshot = store.at(epoch)
        found["epochs"][str(epoch)] = {
            uid: {
                name: rows_of(snapshot.state(uid, name)) for name in (*names, "timers")
            }
            for uid, names in snapshot.operators.items()
        }
    plain: dict[str, Any] = json.loads(json.dumps(found, default=str))
    return plain


def rows_of(relation: Any) -> list[Any]:
    return [list(row.values()) for row in relation.to_arrow().to_pylist()]


def make(spark: SparkSession, place: Path) -> None:
    """Write the stores and what they hold."""
    # Small, so that files are small: merged at once, and in parts of 64 rows.
    writing: list[Any] = [state_files, parts]
    for module in writing:
        module.ROWS_PER_PART = 64
    merging: Any = cleaner
    merging.choose = partial(choose, max_spans=2)
    with TemporaryDirectory() as temporary:
        root = Path(temporary)
        folder = root / "in"
        folder.mkdir()
        parent, fork = root / "parent", root / "fork"
        options: dict[str, Any] = {
            "spark": spark,
            "available_now": True,
            "max_rows_per_epoch": PER_EPOCH,
            "clock": ManualClock(micros(BEGIN)),
        }

        def run(store: Path, rows: int, **more: Any) -> None:
            flow_of(folder, rows).run(str(store), **{**options, **more})

        (folder / "a.txt").write_text("to be\nor not\nto be\n")
        run(parent, ROWS, parallelism=1, max_epochs=2)
        rl.stores.savepoint(str(parent), "early", note="before the change")
        asked = CliRunner().invoke(main, ["set", str(parent), "many.factor=3"])
        assert asked.exit_code == 0, asked.output
        (folder / "b.txt").write_text("not\nto be\n")
        run(parent, ROWS, parallelism=2)
        rl.stores.fork(f"{parent}@early", str(fork))
        run(fork, FORKED_ROWS, parallelism=2, max_epochs=2)
        for store in (parent, fork):
            rl.stores.expire(str(store), epochs=1, grace="0 s")
        check(parent, fork)
        shutil.rmtree(place, ignore_errors=True)
        freeze(root, place)
    with TemporaryDirectory() as temporary:
        stores = thawed(place, Path(temporary))
        expected = {path.name: contents(rl.open(str(path))) for path in stores}
        (place / "expected.json").write_text(json.dumps(expected, sort_keys=True))


def check(parent: Path, fork: Path) -> None:
    """Compare what was written with what plain Python says."""
    assert rl.stores.verify(str(parent)).is_whole
    assert rl.stores.verify(str(fork)).is_whole
    words = Counter(["to be", "or not", "to be", "not", "to be"])
    early = rl.open(str(parent)).at("early").manifest.inputs["rows"].end["row"]
    for store, rows in ((parent, ROWS), (fork, FORKED_ROWS)):
        newest = rl.open(str(store)).at()
        done = newest.manifest.inputs["rows"].end["row"]
        assert done == rows
        assert dict(rows_of(newest.state("words", "n"))) == words
        scaled = dict(rows_of(newest.state("many", "scaled")))
        changed = early if store is parent else rows
        assert scaled == {n: n if n < changed else 3 * n for n in range(rows)}
        model = Model()
        for n in range(rows):
            model.row(n, BEGIN)
        counted = dict(rows_of(newest.state("everything", "count")))
        assert counted == model.view(BEGIN)["count"]
        if store is parent:
            assert plain(read(store, "everything")) == model.view(BEGIN)
    state = rl.open(str(parent)).at().manifest.operators
    assert any(f.footer is not None for f in state["many"].files)
    merged = [
        f for s in state.values() for f in s.files if f.first_epoch < f.last_epoch
    ]
    assert merged


def freeze(root: Path, place: Path) -> None:
    """Copy the stores, without what is of this machine."""
    ignored = shutil.ignore_patterns("landing", ".working", ".tmp")
    for name in ("parent", "fork"):
        shutil.copytree(root / name, place / name, ignore=ignored)
    manifests = place.glob("*/regions/main/epochs/*.json")
    known = "".join(path.read_text() for path in manifests)
    # Merged files that came too late are in no manifest, nor is what was committed.
    for file in place.glob("*/regions/main/st*/*/*.parquet"):
        if file.name not in known:
            file.unlink()
    rewrite(place, str(root), NOWHERE)
    rewrite(place, socket.gethostname(), NOBODY)


def thawed(place: Path, root: Path) -> list[Path]:
    """Copy the stores to a place, where the fork finds its parent again."""
    stores = [root / name for name in ("parent", "fork")]
    for store in stores:
        shutil.copytree(place / store.name, store)
    rewrite(root, NOWHERE, str(root))
    return stores


def rewrite(root: Path, old: str, new: str) -> None:
    """Put another text into all records, and seal them again."""
    for path in root.rglob("*.json"):
        body, _, trailer = path.read_text().partition("\n")
        if old in body and "blake2b" in trailer:
            body = body.replace(old, new)
            digest = checksum(body.encode())
            path.write_text(f'{body}\n{{"blake2b":"{digest}"}}\n')


if __name__ == "__main__":
    make(local_session("frozen", master="local[2]"), Path(sys.argv[1]).absolute())
