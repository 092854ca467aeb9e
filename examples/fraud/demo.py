"""Kills the fraud flow in the middle of its work, again and again, then checks that
nobody could tell: every sink and all state equal one batch computation over the input.

    make demo          or    python -m examples.fraud.demo [--keep DIR]
"""

import argparse
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console
from rich.table import Table

from examples.fraud.compare import Comparison, compare, manifests
from examples.fraud.transactions import ROWS
from riverlock.core.faults import POINTS

ROWS_PER_EPOCH = 20_000
PATIENCE_SECONDS = 120.0
# Each virtual machine lives for seconds: compiling for the long run does not pay.
JAVA_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
# Wide enough for the table where there is no terminal.
console = Console(highlight=False, soft_wrap=True, width=max(Console().width, 100))


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """A run of the flow, and where it dies.

    The flow is held at a named point of the epoch protocol (``riverlock.core.faults``),
    so that ``kill -9`` is certain to come in the middle of an epoch.
    """

    parallelism: int
    point: str | None = None
    hit: int = 0


# P2 is hit once per task and operator: the 14th hit is in the fourth epoch.
ATTEMPTS = (
    Attempt(parallelism=2, point="P2", hit=14),
    Attempt(parallelism=2, point="P6", hit=3),
    Attempt(parallelism=3, point="P8", hit=3),
    Attempt(parallelism=2),
)


@dataclass
class Demo:
    root: Path
    began: float = field(default_factory=time.monotonic)
    shown: int = 0
    kills: int = 0

    @property
    def store(self) -> Path:
        return self.root / "store"

    @property
    def out(self) -> Path:
        return self.root / "out"

    def say(self, text: str) -> None:
        seconds = time.monotonic() - self.began
        console.print(f"[dim]{seconds:6.1f} s[/]  {text}")

    def run(self) -> bool:
        console.print(
            f"\n[bold]{ROWS:,} card payments, 4,000 cards.[/] A Python process watches"
            " each card, totals are kept per merchant.\nThe driver is killed with"
            f" [bold]kill -9[/] in mid-epoch {len(ATTEMPTS) - 1} times.\n"
        )
        for number, attempt in enumerate(ATTEMPTS, start=1):
            self._attempt(number, attempt)
        return self._check()

    def _attempt(self, number: int, attempt: Attempt) -> None:
        tasks = f"{attempt.parallelism} tasks per stage"
        verb = "starts on an empty store" if number == 1 else "recovers"
        self.say(f"[bold green]▶ run {number}[/] {verb}, {tasks}")
        faults = self.root / f"faults-{number}"
        faults.mkdir()
        with self._child(attempt, faults) as child:
            deadline = time.monotonic() + PATIENCE_SECONDS
            held = faults / f"fired-{attempt.point}-{attempt.hit}"
            while child.poll() is None and not held.exists():
                self._show_epochs(number)
                if time.monotonic() > deadline:
                    self._fail(f"run {number} made no end in {PATIENCE_SECONDS:.0f} s")
                time.sleep(0.05)
            self._show_epochs(number)
            if attempt.point is not None:
                if child.poll() is not None:
                    self._fail(f"run {number} ended before {attempt.point}")
                self._kill(child, attempt.point)
            elif child.wait() != 0:
                self._fail(f"run {number} failed")

    @contextmanager
    def _child(
        self, attempt: Attempt, faults: Path
    ) -> Iterator[subprocess.Popen[bytes]]:
        command = [
            *(sys.executable, "-m", "examples.fraud.flow"),
            *("--store", str(self.store), "--out", str(self.out)),
            *("--rows-per-epoch", str(ROWS_PER_EPOCH)),
            *("--parallelism", str(attempt.parallelism)),
        ]
        plan = f"{attempt.point}=pause@{attempt.hit}" if attempt.point else ""
        environment = {
            **os.environ,
            "JAVA_TOOL_OPTIONS": JAVA_OPTIONS,
            "RIVERLOCK_FAULTS": plan,
            "RIVERLOCK_FAULTS_DIR": str(faults),
        }
        with (self.root / "flow.log").open("ab") as log:
            child = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
        try:
            yield child
        finally:
            if child.poll() is None:
                child.kill()
            child.wait()

    def _kill(self, child: subprocess.Popen[bytes], point: str) -> None:
        os.kill(child.pid, signal.SIGKILL)
        child.wait()
        self.kills += 1
        decided = len(manifests(self.store)) - 1
        is_decided = int(point[1:]) > 7  # P7 is where the manifest is written
        visible = max(int(p.name[6:]) for p in self.out.glob("merchants/epoch=*"))
        self.say(
            f"[bold red]✖ kill -9 {child.pid}[/] in epoch"
            f" {decided + (not is_decided)}, at {point}: {POINTS[point]}"
        )
        if is_decided:
            after = f"epoch {decided} is decided: the next run must show it, once"
        else:
            after = f"epoch {decided + 1} must leave no trace, and be done again"
        self.say(f"         readers see epochs 0 to {visible}, whole; {after}")

    def _show_epochs(self, run: int) -> None:
        for manifest in manifests(self.store)[self.shown :]:
            self.shown += 1
            span = manifest["inputs"]["payments"]
            rows = span["end"]["row"] - span["start"]["row"]
            seconds = (manifest["decided_us"] - manifest["started_us"]) / 1_000_000
            alerts = manifest["outputs"]["files-1"].get("rows", 0)
            what = f"{rows:6,} payments" if rows else "timers only    "
            self.say(
                f"  epoch {manifest['epoch']:2d}  {what}  {alerts:5,} alerts"
                f"  [dim]in {seconds:.1f} s by run {run}[/]"
            )

    def _check(self) -> bool:
        self.say("[bold]comparing[/] with one plain Spark SQL computation")

        import riverlock as rl

        spark = rl.spark_session(
            "fraud demo", conf={"spark.driver.extraJavaOptions": JAVA_OPTIONS}
        )
        try:
            results = compare(spark, self.store, self.out, ROWS)
        finally:
            spark.stop()
        console.print(_table(results))
        lost = sum(r.lost for r in results)
        duplicated = sum(r.duplicated for r in results)
        is_equal = all(r.is_equal for r in results)
        colour = "green" if is_equal else "red"
        console.print(
            f"[bold {colour}]{'✔' if is_equal else '✘'} {self.kills} kills,"
            f" {self.shown} epochs, {sum(r.expected for r in results):,} rows compared:"
            f" lost {lost}, duplicated {duplicated}[/]"
            f"   [dim]({time.monotonic() - self.began:.0f} s)[/]\n"
        )
        return is_equal

    def _fail(self, what: str) -> None:
        log = (self.root / "flow.log").read_text(errors="replace")
        console.print(f"[bold red]{what}[/]; the end of its log:")
        console.print(log[-3_000:], markup=False)
        raise SystemExit(1)


def _table(results: list[Comparison]) -> Table:
    table = Table(title="The flow, killed and restarted, against one batch computation")
    table.add_column("result")
    for name in ("expected", "found", "lost", "duplicated"):
        table.add_column(name, justify="right")
    table.add_column("checksum of rows")
    for r in results:
        same = r.checksums[0] == r.checksums[1]
        sums = r.checksums[0] if same else " ≠ ".join(r.checksums)
        mark = "[green]=[/]" if r.is_equal else "[red]≠[/]"
        numbers = (r.expected, r.found, r.lost, r.duplicated)
        table.add_row(r.name, *(f"{n:,}" for n in numbers), f"{mark} {sums}")
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keep", metavar="DIR", help="keep store and output here")
    keep = parser.parse_args().keep
    root = Path(keep or tempfile.mkdtemp(prefix="riverlock-demo-")).absolute()
    root.mkdir(parents=True, exist_ok=True)
    try:
        is_equal = Demo(root).run()
    finally:
        if keep is None:
            shutil.rmtree(root, ignore_errors=True)
    raise SystemExit(0 if is_equal else 1)


if __name__ == "__main__":
    main()
