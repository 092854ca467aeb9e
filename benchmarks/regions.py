"""What cutting a flow into regions costs, and what snapshots of them cost.

    python -m benchmarks.regions [--rows 6000000] [--peers none]

``throughput`` runs two keyed operators over a backlog, in one region and in two, and in
two while a snapshot is taken each second, by each protocol, and in two whose channel is
not kept by the key of its reader (``exchanged``): records per second from the
first epoch of the first region to the last epoch of the last one, in the second run of
a process. ``slow`` takes snapshots of a region with two inputs, one of which passes a
region that is ten times too slow, so that rows have piled up before it: in time, on the
local engine, since waiting needs no Spark.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from benchmarks import harness
from benchmarks.common import median, save, show

if TYPE_CHECKING:
    import riverlock as rl

PROTOCOLS = ("aligned", "unaligned", "drain", "epochs")
KEYS = 100_000
STARTING, ROWS_PER_SECOND = 90.0, 20_000
# How far behind the slow region is when a snapshot is asked for, in seconds of input.
BEHIND = 3.0
PACE, FACTOR = 2_000, 10


# Throughput.


def chain(rows: int, *, is_cut: bool, is_by_key: bool = True) -> rl.Flow:
    """Return a flow of two keyed operators, in one region or in two.

    Args:
        rows: How many there are.
        is_cut: Whether there are two regions.
        is_by_key: Whether the second one can see that nothing changes the key before.
    """
    import riverlock as rl

    class Seen(rl.Process):
        output = "k bigint, other bigint, amount bigint"
        n = rl.Value("bigint", default=0)

        def on_event(self, record: Any, ctx: Any) -> Any:
            self.n += 1
            yield record.k, record.other, record.amount

    class Added(rl.Process):
        n = rl.Value("bigint", default=0)
        total = rl.Value("bigint", default=0)

        def on_event(self, record: Any, ctx: Any) -> None:
            self.n += 1
            self.total += record.amount

    columns = {
        "k": f"pmod(xxhash64(id), {KEYS})",
        "other": f"pmod(xxhash64(id, 1), {KEYS})",
        "amount": "pmod(id, 1000)",
    }
    flow = rl.Flow("regions")
    records = flow.read(rl.sources.generator(columns, rows=rows), uid="in")
    seen = records.key_by("k").process(Seen(), uid="seen")
    if is_cut:
        seen = seen.region("second", uid="to-second")
    if not is_by_key:
        seen = seen.with_column("other", "other")
    seen.key_by("other").process(Added(), uid="added")
    return flow


def throughput(rows: int, per_epoch: int, protocol: str | None) -> dict[str, Any]:
    """Return records per second; the first half of them warms up.

    Args:
        rows: How many are measured.
        per_epoch: How many an epoch takes.
        protocol: ``one``: a single region; ``none``: two; ``exchanged``: two, and rows
            between them are exchanged; else two, and a snapshot each second.
    """
    taken = list[float]()
    cut = {"is_cut": protocol != "one", "is_by_key": protocol != "exchanged"}
    with tempfile.TemporaryDirectory() as store:
        options: dict[str, Any] = {
            "available_now": True,
            "epoch_target": None,
            "max_rows_per_epoch": per_epoch,
            "retain_epochs": 1_000_000,
        }
        chain(rows, **cut).run(store, **options)
        before = newest(store)
        handle = chain(2 * rows, **cut).start(store, **options)
        if protocol in PROTOCOLS:
            taken = snapshots_of(handle, protocol)
        handle.wait()
        seconds = took(store, before)
    return {
        "rate": rows / seconds,
        "snapshots": len(taken),
        "snapshot seconds": median(taken) if taken else None,
    }


def snapshots_of(handle: rl.Handle, protocol: Any) -> list[float]:
    """Take a snapshot each second until the flow ends; return how long each took."""
    from riverlock.core.errors import RiverlockError

    found: list[float] = []

    def take() -> None:
        number = 0
        while handle.is_active:
            began = time.monotonic()
            with suppress(RiverlockError):  # the last one comes too late
                handle.savepoint(f"v{number}", protocol=protocol)
                found.append(time.monotonic() - began)
            number += 1
            time.sleep(max(0.0, began + 1 - time.monotonic()))

    beside = threading.Thread(target=take, daemon=True)
    beside.start()
    handle.wait()
    return found


def newest(store: str) -> dict[str, int]:
    """Return the newest epoch of each region."""
    from riverlock.snapshot.catalog import Catalog
    from riverlock.storage.open import open_storage

    catalog = Catalog(open_storage(store))
    return {r: catalog.of(r).epochs()[-1] for r in catalog.regions()}


def took(store: str, before: dict[str, int]) -> float:
    """Return the time from the first epoch after these to the last of all."""
    from riverlock.snapshot.catalog import Catalog
    from riverlock.storage.open import open_storage

    catalog = Catalog(open_storage(store))
    made = [
        catalog.of(region).stored(epoch)
        for region, last in before.items()
        for epoch in catalog.of(region).epochs()
        if epoch > last
    ]
    began = min(m.started_us for m in made)
    return (max(m.decided_us for m in made) - began) / 1e6


# A slow input.


def forked(began: float) -> rl.Flow:
    """Return a flow whose last region has two inputs, one by way of a slow region."""
    from examples.ledger.flow import COLUMNS, Transfers

    import riverlock as rl

    class Passed(rl.Process):
        output = COLUMNS
        n = rl.Value("bigint", default=0)

        def on_event(self, record: Any, ctx: Any) -> Any:
            self.n += 1
            yield record.source, record.target, record.amount

    class Slow(Passed):
        def on_event(self, record: Any, ctx: Any) -> Any:
            time.sleep(FACTOR / PACE)
            return super().on_event(record, ctx)

    flow = rl.Flow("slow")
    given = flow.read(Transfers(began, PACE), uid="in").key_by("source")
    passed = given.process(Passed(), uid="passed")
    slow = passed.region("slow", uid="to-slow").key_by("source")
    late = slow.process(Slow(), uid="slow").region("last", uid="late")
    both = passed.region("last", uid="direct").union(late)
    both.key_by("target").process(Passed(), uid="last")
    return flow


def slow_snapshot(protocol: Any) -> dict[str, Any]:
    """Return how long a snapshot takes when one region is behind."""
    with tempfile.TemporaryDirectory() as store:
        flow = forked(time.time())
        handle = flow.start(store, execution="local", max_rows_per_epoch=PACE // FACTOR)
        time.sleep(BEHIND)
        began = time.monotonic()
        named = handle.savepoint("v", protocol=protocol)
        seconds = time.monotonic() - began
        handle.stop()
    return {"seconds": seconds, "in flight": sum(s.rows for s in named.in_flight)}


def contenders(chosen: argparse.Namespace) -> list[harness.Contender]:
    most = STARTING + 2 * chosen.rows / ROWS_PER_SECOND
    sizes = [chosen.rows, chosen.per_epoch]
    found = [
        harness.Contender(
            f"throughput, {name}", ("--only", json.dumps([*sizes, name])), most
        )
        for name in ("one", "none", "exchanged", *PROTOCOLS)
    ]
    return found + [
        harness.Contender(f"slow input, {name}", ("--only", json.dumps([name])), 120)
        for name in PROTOCOLS
    ]


def measured(what: list[Any]) -> dict[str, Any]:
    """Return what a contender finds."""
    return slow_snapshot(*what) if len(what) == 1 else throughput(*what)


def ratios(found: dict[str, list[Any]]) -> dict[str, float]:
    """Return what has a target, of what was measured."""
    known = {
        name: median([result.get("rate") or result["seconds"] for result in results])
        for name, results in found.items()
    }
    wanted = {
        "two regions, of one": ("throughput, none", "throughput, one"),
        "by key, of exchanged": ("throughput, none", "throughput, exchanged"),
        "unaligned, of aligned": ("slow input, unaligned", "slow input, aligned"),
    }
    for name in PROTOCOLS:
        each = f"throughput, {name}", "throughput, none"
        wanted[f"{name} each second, of none"] = each
    return {
        what: known[a] / known[b]
        for what, (a, b) in wanted.items()
        if a in known and b in known
    }


# At least; of ``unaligned, of aligned`` at most.
TARGETS = {
    "two regions, of one": 0.8,
    "unaligned, of aligned": 0.2,
    "aligned each second, of none": 0.95,
    "unaligned each second, of none": 0.95,
}


def _line(result: dict[str, Any]) -> str:
    if "rate" not in result:
        return f"{result['seconds']:.2f} s, {result['in flight']:,} rows in flight"
    more = f", {result['snapshots']} snapshots" if result["snapshots"] else ""
    return f"{result['rate']:,.0f} records/s{more}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=6_000_000)
    parser.add_argument("--per-epoch", type=int, default=300_000)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--only", type=json.loads, help=argparse.SUPPRESS)
    harness.add_options(parser)
    chosen = parser.parse_args()
    if chosen.only:
        print(json.dumps(measured(chosen.only)))
        return
    found = harness.measure(
        "benchmarks.regions", contenders(chosen), _line, chosen, rounds=chosen.rounds
    )
    known = ratios(found)
    show(
        "regions and snapshots",
        ["", "found", "target"],
        [[what, f"{r:.2f}", f"{TARGETS.get(what, '')}"] for what, r in known.items()],
    )
    save("regions", {"results": found, "ratios": known, **vars(chosen)})


if __name__ == "__main__":
    main()
