"""A process with every kind of state, and the same over plain dictionaries."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import riverlock as rl
from riverlock.core.types import schema_of
from riverlock.state.keys import key_group

KEYS, GROUPS = 7, 16
BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
ALARM = datetime(2030, 1, 1, tzinfo=UTC)
# Of row number ``id``; ``Model`` knows them too.
COLUMNS = {
    "id": "id",
    "k": f"if(pmod(id, {KEYS}) = 0, null, pmod(id, {KEYS}))",
    "at": "timestamp_seconds(1767225600 + id)",
}
LIMITS = {"name": "concat('limit-', id)", "limit": "cast(id as double) / 4"}


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
        """Return the state, by key, group or nothing."""
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


def plain(found: dict[str, Any]) -> dict[str, Any]:
    """Return what ``reader.py`` gives, keyed by key, group or nothing."""
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
