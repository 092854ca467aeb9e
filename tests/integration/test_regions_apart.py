"""Two Spark applications, a region each, over one store."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

import riverlock as rl

MAIN = "from riverlock.cli import main; main(prog_name='riverlock')"
APP = """
import riverlock as rl

flow = rl.Flow("shop", key_groups=8)
orders = flow.read(
    rl.sources.files({given!r}, format="json", schema="user string, cents long"),
    uid="orders",
)
good = orders.where("cents > 0").region("billing", uid="to-billing", parallelism=2)
billed = good.key_by("user").running_count(uid="billed")
billed.write(rl.sinks.files({out!r}, format="json"), uid="out")
"""


@pytest.mark.slow
def test_each_region_is_a_spark_application(tmp_path: Path) -> None:
    given, out, store = tmp_path / "in", tmp_path / "out", tmp_path / "store"
    given.mkdir()
    orders = [(f"u{n % 5}", n % 7) for n in range(200)]
    for part in range(4):
        lines = [json.dumps({"user": u, "cents": c}) for u, c in orders[part::4]]
        (given / f"{part}.json").write_text("\n".join(lines))
    app = tmp_path / "app.py"
    app.write_text(APP.format(given=str(given), out=str(out)))

    def start(region: str) -> subprocess.Popen[str]:
        words = ["run", str(app), "--store", str(store), "--region", region]
        return subprocess.Popen(
            [sys.executable, "-c", MAIN, *words, "--available-now"],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    # The reader first: it waits until the writer has told the columns.
    children = {region: start(region) for region in ("billing", "main")}
    said = {
        region: child.communicate(timeout=550) for region, child in children.items()
    }
    assert {r: c.returncode for r, c in children.items()} == {
        "billing": 0,
        "main": 0,
    }, said
    wanted = Counter(user for user, cents in orders if cents)
    found = rl.open(str(store)).state("billed").to_arrow().to_pylist()
    assert {row["user"]: row["n"] for row in found} == wanted
