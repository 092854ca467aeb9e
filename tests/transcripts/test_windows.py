"""Event time as scripts: the same steps in one thread and on Spark.

A script (``windows/*.yaml``) says which records each epoch brings (key, value, second),
from which instant on time is still open in it, and what it gives. Its variants are
operators over the same records. The clock begins at 0 and moves on by a second with
each step. In one thread every step is compared. On Spark those scripts run, as one
flow, an epoch per step, whose rows Spark combines: what follows is the same code.
"""

from __future__ import annotations

import json
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from pyspark.sql import SparkSession
from tests.interpreted import interpreted

import riverlock as rl
from riverlock.coordinator.watermarks import first_open_us
from riverlock.core.clock import ManualClock
from riverlock.core.times import END_US, micros
from riverlock.flow.inside import program_of
from riverlock.flow.stream import Stream
from riverlock.testing.local import LocalRun

T = datetime(2026, 1, 1, tzinfo=UTC)
LEFT, RIGHT = (
    "k string, v long, at timestamp",
    "name string, w long, time timestamp",
)
SPAN = "window_start timestamp, window_end timestamp, "
# The columns that say which window it is, where they are others.
BOUNDS = {"count_windows": "first_record long, last_record long, ", "global_window": ""}
# Operators that take records of any time.
NEVER_LATE = ("timers", "lookup")
SCRIPTS = {
    path.stem: yaml.safe_load(path.read_text())
    for path in sorted((Path(__file__).parent / "windows").glob("*.yaml"))
}
# What Spark takes part in, by SQL: the other operators get rows as they are.
COMBINED = {uid: s for uid, s in SCRIPTS.items() if s["operator"] == "sum"}
SECOND_US = 1_000_000
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


def window_of(script: Script) -> tuple[Any, dict[str, Any]]:
    """Return the window, and the other arguments of ``window``."""
    given = dict(script["window"])
    options: dict[str, Any] = {"accumulate": given.pop("accumulate", True)}
    if "lateness" in given:
        options["lateness"] = seconds(given.pop("lateness"))
    if "early" in given:
        early = given.pop("early")
        every = seconds(early["every"]) if "every" in early else None
        options["trigger"] = rl.early(count=early.get("count"), every=every)
    ((kind, sizes),) = given.items()
    sizes = sizes if isinstance(sizes, list) else [sizes]
    is_counted = kind == "count_windows"
    return getattr(rl, kind)(*(sizes if is_counted else map(seconds, sizes))), options


def summed(key: Any, window: Any, records: list[Any]) -> list[Any]:
    bounds = [each for each in window if each is not None]
    return [(key, *bounds, sum(r.v for r in records))]


def folded(old: Any, new: Any) -> Any:
    return old.k, old.v + new.v, max(old.at, new.at)


def sums(keyed: Any, script: Script, uid: str, *, on_spark: bool) -> Stream:
    """Sum values over windows: with SQL on Spark, with Python in one thread."""
    window, options = window_of(script)
    windows = keyed.window(window, **options)
    made: Stream
    if on_spark:
        made = windows.agg(total="sum(v)", uid=uid)
    else:
        bounds = BOUNDS.get(next(iter(script["window"])), SPAN)
        why = "firing string, " if "trigger" in options else ""
        columns = f"k string, {bounds}{why}total long"
        made = windows.apply(summed, columns, uid=uid)
    return made


def is_value(wanted: int) -> Any:
    return lambda event: event.v == wanted


def named(found: dict[str, Any]) -> tuple[str, str]:
    """Say which events a match is made of, and when they were."""
    names = {name: (event.at - T).total_seconds() for name, event in found.items()}
    (key,) = {event.k for event in found.values()}
    return key, " ".join(f"{name} {at:g}" for name, at in names.items())


def matched(keyed: Any, script: Script, uid: str) -> Stream:
    found: Any = rl
    for step in script["pattern"]:
        ((method, (name, value)),) = step.items()
        found = getattr(found, method)(name, is_value(value))
    pattern = found.within(seconds(script["within"]))
    made: Stream = keyed.match(pattern, "k string, found string", named, uid=uid)
    return made


def variants(uid: str, *, on_spark: bool) -> dict[str, Script]:
    """Return the operators of a script: one, or several over the same records.

    On Spark the last one, unless the script names others: the rest would run the same
    code there.
    """
    script = SCRIPTS[uid]
    every = list(script.get("variants", {}).items())
    there = script.get("on_spark", [name for name, _ in every[-1:]])
    chosen = [each for each in every if not on_spark or each[0] in there]
    return {f"{uid}-{n}": {**script, **v} for n, v in chosen} or {uid: script}


def wanted(step: Script, what: str, uid: str, name: str) -> list[Any]:
    """Return the rows of an operator in a step; a list is for all variants."""
    rows = step.get(what, [])
    if isinstance(rows, dict):
        rows = rows.get(name.removeprefix(f"{uid}-"), [])
    return in_order(rows)


def build(flow: rl.Flow, uid: str, folder: Path, *, on_spark: bool) -> None:
    """Add the operators of a script to a flow, with sinks for rows and late ones."""
    script = SCRIPTS[uid]

    def read(side: str, schema: str, column: str) -> Stream:
        name = f"{uid}-from-{side}"
        source = rl.sources.files(
            str(folder / name),
            format="json",
            schema=schema,
            bounded=script.get("bounded", False),
        )
        rows = flow.read(source, uid=name)
        delay = seconds(script["delay"])
        return rows.event_time(column, delay=delay, uid=f"{name}-time")

    keyed = read("left", LEFT, "at").key_by("k")
    other = None
    if script["operator"].startswith(("join", "lookup")):
        other = read("right", RIGHT, "time").key_by("name")
    for name, each in variants(uid, on_spark=on_spark).items():
        made = operator(keyed, other, each, name, on_spark=on_spark)
        made.write(rl.sinks.memory(), mode=each.get("mode"), uid=f"{name}-gives")
        window = each.get("window", {})
        is_timely = each["operator"] not in NEVER_LATE and not {*window} & {*BOUNDS}
        if is_timely:
            made.late.write(rl.sinks.memory(), uid=f"{name}-late")


def operator(
    keyed: Any, other: Any, script: Script, uid: str, *, on_spark: bool
) -> Stream:
    how, within = script.get("how", "inner"), script.get("within")
    made: Stream
    match script["operator"]:
        case "sum":
            made = sums(keyed, script, uid, on_spark=on_spark)
        case "fold":
            window, options = window_of(script)
            made = keyed.window(window, **options).reduce(folded, uid=uid)
        case "top":
            made = keyed.window(window_of(script)[0]).top(2, by="v", uid=uid)
        case "timers":
            made = keyed.process(SumsOfInstants(), uid=uid)
        case "deduplicate":
            made = keyed.deduplicate(seconds(script["within"]), uid=uid)
        case "match":
            made = matched(keyed, script, uid)
        case "lookup":
            made = keyed.lookup(other, how=how, uid=uid)
        case "join_latest":
            made = keyed.join_latest(other, how=how, uid=uid)
        case _:
            bounds: dict[str, Any] = (
                {"window": window_of(script)[0]}
                if within is None
                else {"within": tuple(map(seconds, within))}
            )
            made = keyed.join(other, how=how, uid=uid, **bounds)
    return made


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
    flow, clock = rl.Flow("script"), ManualClock()
    build(flow, uid, tmp_path, on_spark=False)
    run = LocalRun(flow, clock)
    sinks = {write.uid for write in program_of(flow).writes}
    replaced = {write.uid for write in program_of(flow).writes if write.replaces}
    seen: Counter[str] = Counter()
    for number, step in enumerate(SCRIPTS[uid]["steps"]):
        run.has_ended = step.get("open") == "end"
        clock.set_us(number * SECOND_US)
        run.epoch(
            {f"{uid}-from-{side}": rows_of(step, side) for side in ("left", "right")}
        )

        for name in variants(uid, on_spark=False):
            mark = run.operator(name).watermark
            is_open = None if mark is None else first_open_us(micros(mark))
            assert is_open == instant(step.get("open"))
            for what in ("gives", "late"):
                sink = f"{name}-{what}"
                rows = run.rows(sink) if sink in sinks else []
                found = in_order(map(plain, rows[seen[sink] :]))
                assert found == wanted(step, what, uid, name), f"{number}: {sink}"
                seen[sink] = 0 if sink in replaced else len(rows)


def instant(second: float | str | None) -> int | None:
    """Return from when on time is open, as scripts write it."""
    if second is None:
        return None
    if isinstance(second, str):
        return first_open_us(END_US)
    return micros(T + seconds(second))


@pytest.mark.spark
def test_scripts_on_spark(spark: SparkSession, tmp_path: Path) -> None:
    flow, clock = rl.Flow("scripts"), ManualClock()
    for uid, script in COMBINED.items():
        build(flow, uid, tmp_path, on_spark=True)
        for number, step in enumerate(script["steps"]):
            write_step(tmp_path, uid, number, step)

    with interpreted(spark):
        flow.run(
            str(tmp_path / "store"),
            spark=spark,
            available_now=True,
            max_rows_per_epoch=1,
            epoch_target=None,
            parallelism=1,
            clock=clock,
            # Epochs are as far apart as steps.
            on_status=lambda s: clock.set_us(((s.epoch or 0) + 1) * SECOND_US),
        )

    sinks: dict[str, Any] = {write.uid: write.sink for write in program_of(flow).writes}
    replaced = {write.uid for write in program_of(flow).writes if write.replaces}
    for uid, script in COMBINED.items():
        for name in variants(uid, on_spark=True):
            for what in ("gives", "late"):
                sink = sinks.get(f"{name}-{what}")
                found = [] if sink is None else [plain(row) for row in sink.rows()]
                steps = [wanted(s, what, uid, name) for s in script["steps"]]
                if f"{name}-{what}" in replaced:
                    steps = steps[-1:]
                every = [row for rows in steps for row in rows]
                assert in_order(found) == in_order(every), f"{name}: {what}"


def write_step(folder: Path, uid: str, number: int, step: Script) -> None:
    """Write the records of a step as a file of each side; an epoch takes one."""
    for side, names in (("left", ("k", "v", "at")), ("right", ("name", "w", "time"))):
        rows = rows_of(step, side)
        path = folder / f"{uid}-from-{side}"
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
