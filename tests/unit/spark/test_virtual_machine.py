"""A virtual machine that is killed is told as such, at every moment of a start."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

# In a process of its own, whose machine can be killed. User code runs while a flow is
# compiled, so that this is a moment in the middle of a start.
PROGRAM = """
import sys
import riverlock as rl
from pyspark import SparkContext

def kill(frame):
    machine = SparkContext._gateway.proc
    machine.kill()
    machine.wait()
    return frame.where("value > 0")

flow = rl.Flow("lost")
rows = flow.read(rl.sources.generator({"value": "id"}, rows=10, bounded=True), uid="in")
rows.transform(kill).write(rl.sinks.files(sys.argv[2], format="json"), uid="out")
for act in (
    lambda: flow.run(sys.argv[1]),
    lambda: flow.run(sys.argv[1]),
    lambda: flow.start(sys.argv[1]),
    lambda: flow.check(),
):
    try:
        act()
    except Exception as error:
        print(type(error).__name__, getattr(error, "code", error))
"""


def test_a_start_says_so_in_its_middle_and_whenever_it_is_tried_again(
    tmp_path: Path,
) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path / "store"), str(tmp_path / "out")],
        capture_output=True,
        text=True,
        timeout=300,
        env={k: v for k, v in os.environ.items() if not k.startswith("RIVERLOCK_")},
    )

    assert ended.stdout.splitlines() == ["ClusterLostError CLUSTER_LOST"] * 4, ended


def test_a_process_without_a_machine_has_lost_none() -> None:
    program = "from riverlock.spark.virtual_machine import loss; assert loss() is None"

    subprocess.run([sys.executable, "-c", program], check=True, timeout=300)
