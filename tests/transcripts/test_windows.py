"""Event time as scripts: the same steps in one thread and on Spark.

A script (``windows/*.yaml``) says which records each epoch brings (key, value, second),
from which instant on time is still open in it, and what it gives. In one thread every
step is compared. On Spark all scripts run as one flow, an epoch per step.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from pyspark.sql import SparkSession

import riverlock as rl
from riverlock.coordinator.watermarks import first_open_us
from riverlock.core.clock import ManualClock
from riverlock.core.times import micros
from riverlock.flow.stream import Stream
from riverlock.testing.local import LocalRun

T = datetime(2026, 1, 1, tzinfo=UTC)
LEFT, RIGHT = (
    "k string, v long, at timestamp",
    "name string, w long, time timestamp",
)
SUMS = "k string, window_start timestamp, window_end timestamp, total long"
SCRIPTS = {
    path.stem: yaml.safe_load(path.read_text())
    for path in sorted((Path(__file__).parent / "windows").glob("*.yaml"))
}
Script = dict[str, Any]


class SumsOfInstants(rl.Process):
    """Gives the sum of an instant when it is over."""

    output = "k string, at timestamp, total long"
    sums = rl.Map("timestamp", "long")

    def on_event(self, record: Any, ctx: Any) -> None:
        self.sums[ctx.time] = self.sums.get(ctx.time, 0) + record.v
        ctx.set_timer(ctx.time)

    def on_timer(self, at: Any, ctx: Any) -> Any:
        yield ctx.key, at, self.sums.pop(at)


def seconds(number: float) -> timedelta:
    return timedelta(seconds=number)


def window_of(script: Script) -> tuple[Any, timedelta]:
    given = dict(script["window"])
    lateness = seconds(given.pop("lateness", 0))
    ((kind, sizes),) = given.items()
    sizes = sizes if isinstance(sizes, list) else [sizes]
    return getattr(rl, kind)(*map(seconds, sizes)), lateness


def summed(key: Any, window: Any, records: list[Any]) -> list[Any]:
    return [(key, window.start, window.end, sum(r.v for r in records))]


def sums(keyed: Any, script: Script, uid: str, *, on_spark: bool) -> Stream:
    """Sum values over windows: with SQL on Spark, with Python in one thread."""
    window, lateness = window_of(script)
    windows = keyed.window(window, lateness=lateness)
    made: Stream
    if on_spark:
        made = windows.agg(total="sum(v)", uid=uid)
    else:
        made = windows.apply(summed, SUMS, uid=uid)
    return made


def build(flow: rl.Flow, uid: str, folder: Path, *, on_spark: bool) -> None:
    """Add the operator of a script to a flow, with sinks for rows and late ones."""
    script = SCRIPTS[uid]

    def read(side: str, schema: str, column: str) -> Stream:
        source = rl.sources.files(
            str(folder / f"{uid}-{side}"), format="json", schema=schema
        )
        name = f"{uid}-{side}"
        rows = flow.read(source, uid=name)
        delay = seconds(script["delay"])
        return rows.event_time(column, delay=delay, uid=f"{name}-time")

    keyed = read("left", LEFT, "at").key_by("k")
    how, within = script.get("how", "inner"), script.get("within")
    match script["operator"]:
        case "sum":
            made = sums(keyed, script, uid, on_spark=on_spark)
        case "top":
            made = keyed.window(window_of(script)[0]).top(2, by="v", uid=uid)
        case "timers":
            made = keyed.process(SumsOfInstants(), uid=uid)
        case "deduplicate":
            made = keyed.deduplicate(seconds(within), uid=uid)
        case "join_latest":
            other = read("right", RIGHT, "time").key_by("name")
            made = keyed.join_latest(other, how=how, uid=uid)
        case _:
            other = read("right", RIGHT, "time").key_by("name")
            bounds: dict[str, Any] = (
                {"window": window_of(script)[0]}
                if within is None
                else {"within": tuple(map(seconds, within))}
            )
            made = keyed.join(other, how=how, uid=uid, **bounds)
    made.write(rl.sinks.memory(), uid=f"{uid}-gives")
    if script["operator"] != "timers":
        made.late.write(rl.sinks.memory(), uid=f"{uid}-late")


def rows_of(step: Script, side: str) -> list[Any]:
    sent = step.get("sends" if side == "left" else "right", [])
    return [(k, v, None if s is None else T + seconds(s)) for k, v, s in sent]


def plain(row: Any) -> list[Any]:
    """Return a row as scripts write it: times in seconds, late ones by their side."""
    if row[0] in ("left", "right") and len(row) == len(("side", "at", "left", "right")):
        side, _, *both = row
        (record,) = [each for each in both if each is not None]
        is_dict = isinstance(record, dict)
        values = record.values() if is_dict else msgspec.structs.astuple(record)
        return [side, *plain(list(values))]
    return [(v - T).total_seconds() if isinstance(v, datetime) else v for v in row]


def in_order(rows: Any) -> list[Any]:
    floats = [[float(v) if type(v) is int else v for v in row] for row in rows]
    return sorted(floats, key=repr)


@pytest.mark.parametrize("uid", SCRIPTS)
def test_script_in_one_thread(uid: str, tmp_path: Path) -> None:
    flow, script = rl.Flow("script"), SCRIPTS[uid]
    build(flow, uid, tmp_path, on_spark=False)
    run = LocalRun(flow, ManualClock())
    seen = {"gives": 0, "late": 0}
    for number, step in enumerate(script["steps"]):
        run.epoch({f"{uid}-{side}": rows_of(step, side) for side in ("left", "right")})

        mark = run.operator(uid).watermark
        is_open = None if mark is None else first_open_us(micros(mark))
        wanted = step.get("open")
        assert is_open == (None if wanted is None else micros(T + seconds(wanted)))
        for what, before in seen.items():
            rows = run.rows(f"{uid}-{what}")
            found = in_order(map(plain, rows[before:]))
            assert found == in_order(step.get(what, [])), f"step {number}: {what}"
            seen[what] = len(rows)


@pytest.mark.spark
def test_scripts_on_spark(spark: SparkSession, tmp_path: Path) -> None:
    flow = rl.Flow("scripts")
    for uid, script in SCRIPTS.items():
        build(flow, uid, tmp_path, on_spark=True)
        for number, step in enumerate(script["steps"]):
            write_step(tmp_path, uid, number, step)

    flow.run(
        str(tmp_path / "store"),
        spark=spark,
        available_now=True,
        max_rows_per_epoch=1,
        epoch_target=None,
        parallelism=1,
    )

    sinks = {write.uid: write.sink for write in flow.writes}
    for uid, script in SCRIPTS.items():
        for what in ("gives", "late"):
            sink: Any = sinks.get(f"{uid}-{what}")
            found = [] if sink is None else [plain(row) for row in sink.rows()]
            every = [row for step in script["steps"] for row in step.get(what, [])]
            assert in_order(found) == in_order(every), f"{uid}: {what}"


def write_step(folder: Path, uid: str, number: int, step: Script) -> None:
    """Write the records of a step as a file of each side; an epoch takes one."""
    for side, names in (("left", ("k", "v", "at")), ("right", ("name", "w", "time"))):
        rows = rows_of(step, side)
        path = folder / f"{uid}-{side}"
        path.mkdir(exist_ok=True)
        if rows:
            text = "".join(
                json.dumps(
                    # Large enough for an epoch of its own.
                    dict(zip(names, row, strict=True)) | {"_": "x" * 1_000},
                    default=datetime.isoformat,
                )
                + "\n"
                for row in rows
            )
            (path / f"{number:03d}.json").write_text(text)
