"""A handle tells how its flow is doing from the first moment on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import riverlock as rl
from riverlock.snapshot.format.run_status import Status


def test_a_status_is_there_before_the_first_epoch(tmp_path: Path) -> None:
    flow = rl.Flow("shop")
    given: list[Any] = []
    names = flow.read(rl.testing.rows("user string", given), uid="names")
    counts = names.map(lambda r: r, "user string", uid="same")
    counts.write(rl.sinks.memory(), uid="out")
    seen: list[Status] = []

    handle = flow.start(
        str(tmp_path / "store"), execution="local", on_status=seen.append
    )
    first = handle.status()
    handle.stop()

    assert (first.flow, first.epoch, first.rows) == ("shop", None, 0)
    assert str(first).startswith("shop: running, no epoch yet, 0 records")
    assert str(handle.status()).startswith("shop: stopped")


def test_records_of_a_flow_without_spark_are_counted(tmp_path: Path) -> None:
    flow = rl.Flow("shop")
    source = rl.testing.rows("user string", [("ann",)] * 7 + [("bob",)], bounded=True)
    names = flow.read(source, uid="names").filter(lambda r: r.user != "ann", uid="few")
    names.write(rl.sinks.memory(), uid="out")
    seen: list[Status] = []

    flow.run(
        str(tmp_path / "store"),
        execution="local",
        available_now=True,
        on_status=seen.append,
    )

    assert sum({s.epoch: s.rows for s in seen}.values()) == 8
