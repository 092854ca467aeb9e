"""Stores as a run leaves them, made from harnesses: no Spark."""

from __future__ import annotations

import json
import os
import socket
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

import riverlock as rl
from riverlock.snapshot.catalog import Catalog
from riverlock.snapshot.format.records import (
    FORMAT,
    InputRange,
    Manifest,
    OperatorState,
    Run,
    SinkOutput,
    StateFile,
    Watermark,
)
from riverlock.snapshot.format.run_status import Status, status_of
from riverlock.snapshot.format.sealed import checksum
from riverlock.snapshot.owner import process_start
from riverlock.storage.local import LocalStorage
from riverlock.testing import Harness, harness

T0 = 1_700_000_000_000_000


class Velocity(rl.Process):
    output = "user string"
    spent = rl.Value("double", default=0.0)
    recent = rl.List("double", ttl="1 hour")
    seen = rl.Map("string", "long")

    def on_event(self, order: Any, ctx: Any) -> None:
        self.spent += order.amount
        self.recent.append(order.amount)
        self.seen[order.product] = self.seen.get(order.product, 0) + 1
        ctx.set_timer(ctx.now + rl.minutes(10), processing=True)


class Pairs(rl.Process):
    n = rl.Value("long", default=0)

    def on_event(self, row: Any, ctx: Any) -> None:
        self.n += 1


def _velocity() -> Harness:
    return harness(
        Velocity(), key="user", input="user string, amount double, product string"
    )


def _pairs() -> Harness:
    return harness(Pairs(), key=["a", "b"], input="a string, b int")


ORDERS: tuple[list[Any], ...] = (
    [("ann", 3.0, "tea"), ("ben", 5.0, "tea")],
    [("ann", 4.5, "cocoa")],
    [(None, 1.0, "tea"), ("cleo", 2.0, "tea")],
)
PAIRS: tuple[list[Any], ...] = ([("x", 1), ("x", 2)], [("x", 1)], [("y", None)])


def make_store(root: Path) -> Catalog:
    """Make a store with three epochs, 0 to 2, of a run that has stopped."""
    catalog = Catalog(LocalStorage(root))
    flow = catalog.open_flow("shop", key_groups=128, now_us=T0)
    catalog.claim(_run(1, os.getpid()))
    harnesses = {"velocity": _velocity(), "pairs": _pairs()}
    files: dict[str, list[StateFile]] = {uid: [] for uid in harnesses}
    for epoch, rows in enumerate(zip(ORDERS, PAIRS, strict=True)):
        for (uid, h), sent in zip(harnesses.items(), rows, strict=True):
            h.send(*sent)
            files[uid].append(_file(catalog, uid, epoch, h.snapshot().changes[-1]))
        operators = {uid: _state(h, files[uid]) for uid, h in harnesses.items()}
        manifest = _manifest(flow.id, epoch, operators, harnesses["velocity"])
        assert catalog.decide(manifest)
    say(catalog, state="stopped")
    beat(catalog, has_ended=True)
    return catalog


def _run(number: int, pid: int) -> Run:
    host = socket.gethostname()
    return Run(run=number, host=host, pid=pid, token=f"t{number}", started_us=T0)


def _file(catalog: Catalog, uid: str, epoch: int, data: bytes) -> StateFile:
    path = catalog.paths.state_file(uid, epoch, f"attempt-{epoch}")
    catalog.storage.put(path, data)
    return StateFile(
        path=path,
        first_epoch=epoch,
        last_epoch=epoch,
        first_group=0,
        end_group=128,
        rows=pq.read_table(pa.BufferReader(data)).num_rows,
        bytes=len(data),
        checksum=checksum(data),
    )


def _state(h: Harness, files: list[StateFile]) -> OperatorState:
    layout = h._layout
    return OperatorState(
        keys=layout.keys.ddl,
        variables=layout.variables,
        files=tuple(files),
        entries=sum(f.rows for f in files),
    )


def _manifest(
    flow: str, epoch: int, operators: dict[str, OperatorState], h: Harness
) -> Manifest:
    started = T0 + epoch * 2_000_000
    return Manifest(
        format=FORMAT,
        flow=flow,
        region="main",
        epoch=epoch,
        parent=epoch - 1 if epoch else None,
        run=1,
        started_us=started,
        decided_us=started + 1_000_000,
        now_us=h.clock.now_us(),
        seed=1,
        parallelism=2,
        key_groups=128,
        code="c0de" * 6,
        inputs={"files-1": InputRange(start=epoch * 3, end=epoch * 3 + 3, rows=3)},
        watermarks={"at": Watermark(watermark_us=T0)},
        operators=operators,
        outputs={"files-2": SinkOutput(kind="files", rows=2)},
        metrics={"stages": {"velocity": {"rows": 3}}},
    )


def say(catalog: Catalog, *, state: str, error: str | None = None) -> None:
    """Write the live status of the newest run."""
    run, newest = catalog.newest_run(), catalog.newest()
    assert run is not None
    assert newest is not None
    status: Status = msgspec.structs.replace(
        status_of(newest, updated_us=newest.decided_us, state=state),
        run=run.run,
        error=error,
        lag_rows={"files-1": 7},
    )
    catalog.storage.put(catalog.paths.status, msgspec.json.encode(status))


def beat(catalog: Catalog, *, has_ended: bool = False, pid: int | None = None) -> None:
    """Write the heartbeat of the newest run."""
    run = catalog.newest_run()
    assert run is not None
    found = {
        "run": run.run,
        "host": run.host,
        "pid": pid or run.pid,
        "started": process_start(pid or run.pid) or "gone",
        "count": 1,
        "has_ended": has_ended,
    }
    catalog.storage.put(catalog.paths.owner, json.dumps(found).encode())


def claim(catalog: Catalog, pid: int) -> None:
    """Let another run begin."""
    newest = catalog.newest_run()
    assert newest is not None
    assert catalog.claim(_run(newest.run + 1, pid))
