"""Runs of the queries: here, or in a process that dies on the way."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import riverlock as rl
from riverlock.core import faults

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Each virtual machine lives for seconds: compiling for the long run does not pay.
JAVA_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


def run(
    flow: rl.Flow,
    spark: "SparkSession",
    root: Path,
    rows_per_epoch: int,
    **options: Any,
) -> None:
    """Run the queries to the end of the events, from wherever they are."""
    flow.run(
        str(root / "store"),
        spark=spark,
        available_now=True,
        max_rows_per_epoch=rows_per_epoch,
        **options,
    )


def run_and_die(arguments: list[str], root: Path, plan: str) -> None:
    """Run the queries in a process of its own, which a fault kills on its way.

    Args:
        arguments: Of ``python -m examples.nexmark``.
        root: Where store and output are.
        plan: Where to ``kill -9`` which process (``riverlock.core.faults``).
    """
    deaths = root / f"faults-{len(list(root.glob('faults-*')))}"
    deaths.mkdir(parents=True)
    environment = {
        **os.environ,
        "JAVA_TOOL_OPTIONS": JAVA_OPTIONS,
        faults.PLAN_VARIABLE: plan,
        faults.DIRECTORY_VARIABLE: str(deaths),
    }
    command = [sys.executable, "-m", "examples.nexmark", *arguments]
    done = subprocess.run(
        [*command, "--run-in", str(root)],
        cwd=Path(__file__).parents[2],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    planned = sorted(f"{f.point}-{f.at}" for f in faults.parse(plan))
    if done.returncode != -signal.SIGKILL or faults.fired(deaths) != planned:
        fired = ", ".join(faults.fired(deaths)) or "none"
        message = f"expected {plan}, found faults {fired} and {done.returncode}"
        raise RuntimeError(f"{message}\n{done.stdout[-3000:]}")
