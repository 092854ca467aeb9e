"""Runs the Nexmark queries and compares each with one batch computation in plain SQL.

python -m examples.nexmark [--events 100000] [--query q5 q7] [--kill]
"""

import argparse
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

import riverlock as rl
from examples.nexmark.compare import Comparison, compare
from examples.nexmark.events import Events, make_tables
from examples.nexmark.queries import QUERIES, build
from examples.nexmark.runs import run, run_and_die
from riverlock.core.faults import POINTS, parse

# A worker in user code; a driver that has staged everything and decided nothing; one
# that has decided, and shown the results of some queries only.
KILLS = ("P2=kill@3;P6=kill@2", "P9=kill@{sinks}")
console = Console(highlight=False, soft_wrap=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--events", type=int, default=100_000)
    parser.add_argument("--per-second", type=int, default=1_000, help="of event time")
    parser.add_argument("--shuffled", type=int, default=100, help="out of order by")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument(
        "--query", nargs="+", choices=QUERIES, default=list(QUERIES), metavar="q5"
    )
    parser.add_argument("--kill", action="store_true", help="kill -9 on the way")
    parser.add_argument("--keep", type=Path, help="keep store and output here")
    parser.add_argument("--run-in", type=Path, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    events = Events(
        count=chosen.events,
        per_second=chosen.per_second,
        shuffled=chosen.shuffled,
        seed=chosen.seed,
    )
    if chosen.run_in:
        _run(
            rl.spark_session("nexmark", master="local[2,4]"),
            events,
            chosen,
            chosen.run_in,
        )
        return
    with _folder(chosen.keep) as root:
        raise SystemExit(0 if _play(events, chosen, root) else 1)


def _run(spark: Any, events: Events, chosen: argparse.Namespace, root: Path) -> None:
    share = -(-events.count // chosen.epochs)
    flow = build(events, str(root / "out"), chosen.query)
    run(flow, spark, root, share, on_status=_show)


def _show(status: Any) -> None:
    if status.state == "running":
        console.print(f"  epoch {status.epoch}: {status.rows:,} events")


def _play(events: Events, chosen: argparse.Namespace, root: Path) -> bool:
    began = time.monotonic()
    bids = f"{events.count:,} events, {events.count // 50 * 46:,} of them bids"
    console.print(f"[bold]{bids}; {len(chosen.query)} queries in one flow[/]")
    for kills in KILLS if chosen.kill else ():
        plan = kills.format(sinks=len(chosen.query) + 1)
        run_and_die(sys.argv[1:], root, plan)
        for fault in parse(plan):
            console.print(f"  [red]kill -9[/] at {fault.point}: {POINTS[fault.point]}")
    spark = rl.spark_session("nexmark", conf={"spark.sql.shuffle.partitions": "4"})
    _run(spark, events, chosen, root)
    make_tables(events, spark)
    results = [compare(spark, name, str(root / "out")) for name in chosen.query]
    spark.stop()
    console.print(_table(results))
    console.print(f"[dim]{time.monotonic() - began:.0f} s[/]")
    return all(r.is_equal for r in results)


def _table(results: list[Comparison]) -> Table:
    table = Table(title="The flow against one batch computation")
    table.add_column("query")
    table.add_column("")
    for name in ("rows", "lost", "duplicated"):
        table.add_column(name, justify="right")
    table.add_column("equal to batch")
    for r in results:
        what = (QUERIES[r.name].build.__doc__ or "").split(":")[0].rstrip(".")
        numbers = (f"{n:,}" for n in (r.found, r.lost, r.duplicated))
        table.add_row(r.name, what, *numbers, "yes" if r.is_equal else "[red]no[/]")
    return table


@contextmanager
def _folder(keep: Path | None) -> Iterator[Path]:
    root = (keep or Path(tempfile.mkdtemp(prefix="riverlock-nexmark-"))).absolute()
    root.mkdir(parents=True, exist_ok=True)
    try:
        yield root
    finally:
        if keep is None:
            shutil.rmtree(root, ignore_errors=True)


if __name__ == "__main__":
    main()
