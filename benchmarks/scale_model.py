"""What a large cluster asks of coordinator, manifests and store, by simulation.

    python -m benchmarks.scale_model [--tasks 1000 10000] [--regions 50 --channels 500]

No Spark: tasks are fake, but coordinators, sealing, planners, manifests, retention and
the keeper of snapshots are the real ones, over a store in memory that counts what it is
asked. ``scale_tasks`` is a region of so many tasks, with and without lists of state
files beside its manifests; ``scale_regions`` is a snapshot over many regions by each
protocol, in virtual time. What is meant by each figure: docs/scale.md.
"""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING, Any

from benchmarks import harness, scale_regions, scale_tasks
from benchmarks.common import save, show

if TYPE_CHECKING:
    from collections.abc import Callable

QUICK = {"tasks": [600], "epochs": 15, "regions": 10, "channels": 24, "before": 4}
# What a contender may take at most on a busy machine.
SECONDS_PER_TASK, SECONDS_PER_CHANNEL = 0.06, 0.6


def by_tasks(found: list[dict[str, Any]]) -> None:
    """Print what regions of so many tasks cost."""
    rows: list[tuple[str, Callable[[dict[str, Any]], str]]] = [
        ("manifest, most", lambda r: _size(r["most"]["manifest bytes"])),
        ("put by the driver in an epoch", lambda r: _size(_put(r))),
        ("state files, most", lambda r: f"{r['most']['files']:,.0f}"),
        ("lists, most", lambda r: f"{r['most']['lists']:,.0f}"),
        ("sealed in", lambda r: f"{r['epoch']['seal seconds']:.3f} s"),
        ("encoded and put in", lambda r: f"{r['epoch']['put seconds']:.3f} s"),
        ("votes", lambda r: _size(r["epoch"]["vote bytes"])),
        ("votes read in", lambda r: f"{r['epoch']['vote seconds']:.3f} s"),
        ("a task is told", lambda r: _size(r["told bytes"])),
        ("all tasks are told", lambda r: _size(r["told bytes"] * r["tasks"])),
        ("a task reads of lists", lambda r: _size(r["next epoch"]["list bytes"])),
        ("puts by the driver", lambda r: f"{r['epoch']['driver puts']:,.0f}"),
        ("gets by the driver", lambda r: f"{r['epoch']['driver gets']:,.0f}"),
        ("listings by the driver", lambda r: f"{r['epoch']['driver listings']:,.0f}"),
        ("puts by tasks", lambda r: f"{r['epoch']['task puts']:,.0f}"),
        ("recovery: the driver reads", lambda r: _size(r["driver"]["bytes"])),
        ("a task reads of lists", lambda r: _size(r["recovery"]["list bytes"])),
        ("and of state", lambda r: _size(r["recovery"]["state bytes"])),
        ("a quarter more tasks: each reads", lambda r: _size(_rescaled(r))),
        ("to name an epoch: requests", lambda r: f"{sum(r['name'].values()):,.0f}"),
        ("a round of retention reads", lambda r: _size(r["sweep"]["bytes read"])),
        ("and lists, requests", lambda r: f"{r['sweep']['listings']:,.0f}"),
    ]
    names = [f"{r['tasks']:,}{', lists' if r['lists'] else ''}" for r in found]
    show(
        "a region with so many tasks",
        ["", *names],
        [[what, *(of(r) for r in found)] for what, of in rows],
    )


def by_regions(found: list[dict[str, Any]], title: str) -> None:
    """Print what snapshots over many regions take."""
    show(
        title,
        ["", "takes", "in flight", "source rows/s", "gets/s", "listings/s", "epochs/s"],
        [
            [
                f"{r['skew']}, {r['protocol']}",
                "" if r["seconds"] is None else f"{r['seconds']:.1f} s",
                f"{r['rows in flight']:,}",
                f"{r['source rows per second']:,.0f}",
                f"{r['gets per second']:,.0f}",
                f"{r['listings per second']:,.0f}",
                f"{r['epochs per second']:,.0f}",
            ]
            for r in found
        ],
    )


def _put(result: dict[str, Any]) -> float:
    epoch = result["epoch"]
    return float(epoch["manifest bytes"] + epoch["list bytes"])


def _rescaled(result: dict[str, Any]) -> float:
    return float(sum(result["rescale"].values()))


def _size(count: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1_000 or unit == "GB":
            return f"{count:,.0f} {unit}" if unit == "B" else f"{count:,.1f} {unit}"
        count /= 1_000
    raise AssertionError


def contenders(chosen: argparse.Namespace) -> list[harness.Contender]:
    """Return each size with and without lists, and each protocol."""
    found = [
        harness.Contender(
            f"{tasks:,} tasks, {'with' if has_lists else 'without'} lists",
            ("--only", json.dumps([tasks, chosen.epochs, has_lists])),
            60 + tasks * SECONDS_PER_TASK,
        )
        for tasks in chosen.tasks
        for has_lists in (False, True)
    ]
    shape = [chosen.regions, chosen.channels, chosen.before]
    return found + [
        harness.Contender(
            f"{chosen.regions} regions, {skew.name}, {protocol or 'no snapshot'}",
            ("--only", json.dumps([*shape, number, protocol])),
            60 + chosen.channels * SECONDS_PER_CHANNEL,
        )
        for number, skew in enumerate(scale_regions.SKEWS)
        for protocol in scale_regions.PROTOCOLS
    ]


def measured(what: list[Any]) -> dict[str, Any]:
    """Return what a contender finds."""
    if len(what) == 3:
        tasks, epochs, has_lists = what
        shape = scale_tasks.Shape(tasks=tasks, epochs=epochs, has_lists=has_lists)
        return scale_tasks.measured(shape)
    regions, channels, before, skew, protocol = what
    return scale_regions.snapshot(
        scale_regions.layered(regions, channels),
        scale_regions.SKEWS[skew],
        protocol,
        before=before,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tasks", type=int, nargs="+", default=[1_000, 10_000])
    parser.add_argument("--epochs", type=int, default=40, help="that a region runs")
    parser.add_argument("--regions", type=int, default=50)
    parser.add_argument("--channels", type=int, default=500)
    parser.add_argument("--before", type=int, default=10, help="a snapshot, in seconds")
    parser.add_argument("--quick", action="store_true", help="small, in seconds")
    parser.add_argument("--json", action="store_true", help="print all of it as JSON")
    parser.add_argument("--only", type=json.loads, help=argparse.SUPPRESS)
    harness.add_options(parser)
    chosen = parser.parse_args()
    if chosen.only:
        print(json.dumps(measured(chosen.only)))
        return
    if chosen.quick:
        vars(chosen).update(QUICK)
    found = harness.measure("benchmarks.scale_model", contenders(chosen), _line, chosen)
    results = [each for each, *_ in found.values()]
    tasks = [r for r in results if "tasks" in r]
    regions = [r for r in results if "protocol" in r]
    save("scale_model", {"tasks": tasks, "regions": regions, **vars(chosen)})
    if chosen.json:
        print(json.dumps({"tasks": tasks, "regions": regions}, indent=2))
        return
    by_tasks(tasks)
    by_regions(regions, f"{chosen.regions} regions, {chosen.channels} channels")


def _line(result: dict[str, Any]) -> str:
    if "tasks" in result:
        return f"manifests of {_size(result['most']['manifest bytes'])}"
    if result["seconds"] is None:
        return f"{result['source rows per second']:,.0f} rows/s"
    return f"{result['seconds']:.1f} s of virtual time"


if __name__ == "__main__":
    main()
