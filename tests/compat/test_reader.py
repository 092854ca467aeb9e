"""The sixty-line reader against our own, and both against what must be there."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from tests.compat.reader import read

import riverlock as rl
from riverlock.core.clock import ManualClock
from riverlock.core.times import micros
from riverlock.snapshot.catalog import Catalog
from riverlock.snapshot.reader import read_entries, read_variable
from riverlock.state.keys import key_group
from riverlock.storage import LocalStorage

READER = Path(__file__).with_name("reader.py")
ROWS, PER_EPOCH, EARLY = 560, 40, 13
KEYS, GROUPS = 7, 16
BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
ALARM = datetime(2030, 1, 1, tzinfo=UTC)


class Everything(rl.Process):
    output = "k long"
    count = rl.Value("long", default=0)
    fresh = rl.Value("string", ttl="1 hour")
    tail = rl.List("long")
    burst = rl.List("struct<id:long,name:string>", ttl="1 hour")
    seen = rl.Map("string", "long")
    best = rl.Reducing("long", max)
    in_group = rl.Value("long", default=0, scope="group")
    limits = rl.Map("string", "double", scope="broadcast")
    version = rl.Value("long", scope="broadcast")

    def on_event(self, row: Any, ctx: rl.Context) -> Iterator[Any]:
        self.count += 1
        self.in_group += 1
        self.best.add(row.id % 100)
        self.tail.append(row.id)
        if len(self.tail) > 3:
            self.tail.replace(list(self.tail)[-2:])
        self.seen[str(row.id % 11)] = row.id
        if row.id % 5 == 0:
            self.seen.pop(str((row.id + 1) % 11), None)
            self.fresh = f"row {row.id}"
        if row.id % 9 == 0:
            self.burst.append({"id": row.id, "name": None})
        for old in ctx.timers():
            ctx.delete_timer(old)
        assert ctx.time is not None
        ctx.set_timer(ctx.time + rl.days(1))
        ctx.set_timer(ALARM, processing=True)
        yield row.k

    def on_timer(self, at: datetime, ctx: rl.Context) -> None:
        raise AssertionError(at)

    def on_broadcast(self, row: Any, ctx: rl.Context) -> None:
        self.limits[row.name] = row.limit
        self.version = (self.version or 0) + 1


def _flow() -> rl.Flow:
    flow = rl.Flow("everything", key_groups=GROUPS)
    rows = {
        "id": "id",
        "k": f"if(pmod(id, {KEYS}) = 0, null, pmod(id, {KEYS}))",
        "at": "timestamp_seconds(1767225600 + id)",
    }
    limits = {"name": "concat('limit-', id)", "limit": "cast(id as double) / 4"}
    events = flow.read(rl.sources.generator(rows, rows=ROWS), uid="rows")
    other = flow.read(rl.sources.generator(limits, rows=3), uid="limits")
    keyed = events.event_time("at").key_by("k")
    keyed.process(Everything(), uid="everything", broadcast=other).write(
        rl.sinks.memory()
    )
    return flow


@dataclass
class Model:
    """The same logic over dictionaries, row by row."""

    count: dict[Any, int] = field(default_factory=lambda: defaultdict(int))
    fresh: dict[Any, tuple[str, datetime]] = field(default_factory=dict)
    tail: dict[Any, list[int]] = field(default_factory=lambda: defaultdict(list))
    burst: dict[Any, list[tuple[Any, datetime]]] = field(
        default_factory=lambda: defaultdict(list)
    )
    seen: dict[Any, dict[str, int]] = field(default_factory=lambda: defaultdict(dict))
    best: dict[Any, int] = field(default_factory=dict)
    groups: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    timers: dict[Any, datetime] = field(default_factory=dict)

    def row(self, n: int, now: datetime) -> None:
        from riverlock.core.types import schema_of

        k = n % KEYS or None
        self.count[k] += 1
        self.groups[key_group((k,), schema_of("k long"), GROUPS)] += 1
        self.best[k] = max(self.best.get(k, 0), n % 100)
        self.tail[k].append(n)
        if len(self.tail[k]) > 3:
            self.tail[k] = self.tail[k][-2:]
        self.seen[k][str(n % 11)] = n
        if n % 5 == 0:
            self.seen[k].pop(str((n + 1) % 11), None)
            self.fresh[k] = (f"row {n}", now + timedelta(hours=1))
        if n % 9 == 0:
            value = ({"id": n, "name": None}, now + timedelta(hours=1))
            self.burst[k].append(value)
        self.timers[k] = BEGIN + timedelta(seconds=n, days=1)

    def view(self, now: datetime) -> dict[str, Any]:
        """Return the state in the form of ``_plain``."""
        return {
            "count": dict(self.count),
            "fresh": {k: v for k, (v, end) in self.fresh.items() if end > now},
            "tail": {k: v for k, v in self.tail.items() if v},
            "burst": {
                k: kept
                for k, v in self.burst.items()
                if (kept := [e for e, end in v if end > now])
            },
            "seen": {k: v for k, v in self.seen.items() if v},
            "best": self.best,
            "in_group": dict(self.groups),
            "limits": {f"limit-{i}": i / 4 for i in range(3)},
            "version": 3,
            "timers": {
                k: {("event", at), ("processing", ALARM)}
                for k, at in self.timers.items()
            },
        }


def _plain(found: dict[str, Any]) -> dict[str, Any]:
    """Return the reader's output keyed by key, group or nothing."""
    result: dict[str, Any] = {}
    for name in ("count", "fresh", "best"):
        result[name] = {e["key"]["k"]: e["value"] for e in found[name]}
    for name in ("tail", "burst"):
        lists: dict[Any, Any] = defaultdict(list)
        for e in sorted(found[name], key=lambda e: e["value"]["index"]):
            lists[e["key"]["k"]].append(e["value"]["value"])
        result[name] = dict(lists)
    maps: dict[Any, Any] = defaultdict(dict)
    for e in found["seen"]:
        maps[e["key"]["k"]][e["value"]["key"]] = e["value"]["value"]
    timers: dict[Any, Any] = defaultdict(set)
    for e in found["timers"]:
        timers[e["key"]["k"]].add((e["value"]["kind"], e["value"]["at"]))
    result |= {"seen": dict(maps), "timers": dict(timers)}
    result["in_group"] = {e["key_group"]: e["value"] for e in found["in_group"]}
    result["limits"] = {e["value"]["key"]: e["value"]["value"] for e in found["limits"]}
    (version,) = found["version"]
    assert version["key"] is None
    assert version["key_group"] is None
    result["version"] = version["value"]
    return result


@pytest.fixture(scope="module")
def store(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of fourteen epochs, the last of them two hours later."""
    path = tmp_path_factory.mktemp("compat") / "store"
    for hours, epochs in ((0, EARLY), (2, None)):
        _flow().run(
            str(path),
            spark=spark,
            available_now=True,
            parallelism=2 + hours,
            max_rows_per_epoch=PER_EPOCH,
            max_epochs=epochs,
            clock=ManualClock(micros(BEGIN + timedelta(hours=hours))),
        )
    Catalog(LocalStorage(path)).pin("early", epoch=5, now_us=0)
    return path


@pytest.mark.spark
def test_reader_gives_the_state_of_every_retained_epoch(store: Path) -> None:
    catalog = Catalog(LocalStorage(store))
    model, epochs = Model(), catalog.epochs()

    assert len(epochs) >= ROWS // PER_EPOCH
    for epoch in epochs:
        read_rows = catalog.manifest(epoch).inputs["rows"]
        now = BEGIN + timedelta(hours=0 if epoch < EARLY else 2)
        for n in range(read_rows.start["row"], read_rows.end["row"]):
            model.row(n, now)

        assert _plain(read(store, "everything", str(epoch))) == model.view(now), epoch


@pytest.mark.spark
def test_reader_agrees_with_ours_entry_by_entry(store: Path) -> None:
    catalog = Catalog(LocalStorage(store))
    for epoch in catalog.epochs():
        manifest = catalog.manifest(epoch)
        state = manifest.operators["everything"]
        entries = read_entries(catalog.storage, state, now_us=manifest.now_us)
        assert entries is not None
        theirs = read(store, "everything", str(epoch))

        for name in [*state.variables, "timers"]:
            ours = read_variable(entries, state, name).to_pylist()
            shared = name in ("limits", "version")  # these have no key in front
            assert [list(_values(e["value"])) for e in theirs[name]] == [
                list(r.values())[0 if shared else 1 :] for r in ours
            ]


def _values(value: Any) -> Iterator[Any]:
    is_entry = isinstance(value, dict) and {"value", "at"} & value.keys()
    yield from value.values() if is_entry else [value]


@pytest.mark.spark
def test_reader_is_a_program_of_sixty_lines_without_riverlock(store: Path) -> None:
    text = READER.read_text()
    command = [sys.executable, str(READER), str(store), "everything", "early"]

    printed = subprocess.run(command, capture_output=True, text=True, check=True)

    assert json.loads(printed.stdout)["version"][0]["value"] == 3
    assert len(text.splitlines()) <= 60
    assert "import riverlock" not in text
    assert "from riverlock" not in text
