"""Starts a flow again and again, and kills it.

A process of its own, so that it can fork without threads: a child costs no start of
Python. Each child is sent SIGKILL by itself at a point of an epoch, or a moment later;
points take turns, so that each has its share. The last child runs to the end.

Run as ``python -m tests.chaos.nursery STORE KILLS SEED FLOW ARGUMENT...``; prints what
became of the children.
"""

from __future__ import annotations

import importlib
import json
import os
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from tests.chaos import kafka_copy, numbers
from tests.chaos.children import ROOT
from tests.unsynced import without_sync

from riverlock.connectors.kafka.producer import TransactionalProducer
from riverlock.core import faults
from riverlock.snapshot.catalog import Catalog
from riverlock.storage.open import open_storage

# Of Kafka's committer alone, inside its commit.
SENT, KNOWN = "rows are sent, not committed", "committed, not known"
POINTS = ("R3", "P9", "P8", "R4", "P6", "P9", "P5", "P10", "P8", "P1", "P11", "P7")
_MOST_STEPS = 60
_FAR = 1_000_000

Runs = Callable[[str, int], None]


@dataclass(frozen=True, kw_only=True)
class Lives:
    """What became of the children."""

    points: list[str]  # where those that were to die did so
    codes: list[int]
    last: int
    limit: int  # the end of the input of the last one
    words: str


def kills(store: Path | str, *, count: int, seed: int, flow: tuple[str, ...]) -> Lives:
    """Let a flow live and die ``count`` times, then run to its end."""
    command = [sys.executable, "-m", "tests.chaos.nursery", str(store)]
    done = subprocess.run(
        [*command, str(count), str(seed), *flow],
        cwd=ROOT,
        capture_output=True,
        check=False,
        text=True,
    )
    words = done.stderr[-3000:]
    assert done.returncode == 0, words
    return Lives(words=words, **json.loads(done.stdout))


def _numbers(sinks: Callable[[], Any], store: str, limit: int) -> None:
    numbers.run(store, sinks(), limit=limit)


def _copy(servers: str, source: str, target: str, store: str, limit: int) -> None:
    kafka_copy.run(
        kafka_copy.Copy(servers=servers, source=source, target=target, store=store)
    )


# What a flow would import when it has begun: every child would do so again. Arrow loads
# pandas with the first list it is given, which takes longer than most of these lives.
_PRELOADED_BY_ALL = (
    "concurrent.futures.thread",
    "pandas",
    "pyarrow.dataset",
    "pyarrow.pandas_compat",
    "riverlock.connectors.builtin_stagers",
    "riverlock.sinks",
)
_PRELOADED = {
    "sql": (
        "psycopg",
        "pymysql",
        "riverlock.connectors.databases.committer",
        "riverlock.connectors.databases.mysql",
        "riverlock.connectors.databases.postgres",
        "riverlock.connectors.databases.sqlite",
        "riverlock.connectors.databases.staging",
    ),
    "two": (
        "psycopg",
        "pymysql",
        "riverlock.connectors.databases.committer",
        "riverlock.connectors.databases.mysql",
        "riverlock.connectors.databases.postgres",
        "riverlock.connectors.databases.staging",
    ),
    "redis": ("redis", "riverlock.connectors.redis.sink"),
    "kafka and redis": (
        "confluent_kafka.admin",
        "redis",
        "riverlock.connectors.kafka.committers",
        "riverlock.connectors.redis.sink",
    ),
    "delta": ("deltalake", "riverlock.connectors.delta.sink"),
    "files": ("obstore", "riverlock.connectors.files.object_files"),
    "kafka": ("confluent_kafka.admin", "riverlock.connectors.kafka.committers"),
}
_FLOWS: dict[str, Callable[..., Runs]] = {
    "sql": lambda *where: partial(_numbers, partial(numbers.sinks_of, *where)),
    "two": lambda *where: partial(_numbers, partial(numbers.sinks_of_two, *where)),
    "redis": lambda *where: partial(_numbers, partial(numbers.redis_sinks, *where)),
    "kafka and redis": lambda *where: partial(
        _numbers, partial(numbers.kafka_and_redis_sinks, *where)
    ),
    "delta": lambda *where: partial(_numbers, partial(numbers.delta_sinks, *where)),
    "files": lambda *where: partial(_numbers, partial(numbers.file_sinks, *where)),
    "kafka": lambda *where: partial(_copy, *where),
}


def _arm(chance: random.Random, point: str, tell: int) -> None:
    """Let this process die at a point, or up to 20 ms later."""
    # Recovery comes once in a life.
    left = 1 if point.startswith("R") else chance.randrange(1, 3)
    delay = chance.choice((0.0, chance.uniform(0, 0.02)))
    steps, is_dying = 0, False

    def die() -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    def hit(name: str) -> None:
        nonlocal left, steps, is_dying
        left -= name == point
        steps += 1
        # A point that does not come in this life is not waited for.
        if is_dying or (left > 0 and steps < _MOST_STEPS):
            return
        is_dying = True
        os.write(tell, f"{name}\n".encode())
        if delay:
            threading.Timer(delay, die).start()
        else:
            die()

    commit = TransactionalProducer._commit

    def commit_between(self: Any, marker: Any) -> None:
        hit(SENT)
        commit(self, marker)
        hit(KNOWN)

    setattr(faults, "hit", hit)  # noqa: B010 - mypy knows it is a function
    setattr(TransactionalProducer, "_commit", commit_between)  # noqa: B010


def _live(run: Callable[[], None], arm: Callable[[], None] | None) -> int:
    child = os.fork()
    if child == 0:
        status = 1
        try:
            if arm is not None:
                arm()
            run()
            status = 0
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def _end_of(store: str) -> Any:
    """Ask in a child: a client of object stores has threads, and we fork."""
    told, tell = os.pipe()

    def ask() -> None:
        newest = Catalog(open_storage(store)).newest()
        end = 0 if newest is None else newest.inputs["in"].end
        os.write(tell, json.dumps(end).encode())

    assert _live(ask, None) == 0
    os.close(tell)
    with os.fdopen(told) as answer:
        return json.load(answer)


def main() -> None:
    without_sync()
    store, count, seed, flow, *where = sys.argv[1:]
    run = _FLOWS[flow](*where)
    for name in (*_PRELOADED_BY_ALL, *_PRELOADED[flow]):
        importlib.import_module(name)
    points = (*POINTS, SENT, KNOWN) if "kafka" in flow else POINTS
    chance = random.Random(int(seed))
    told, tell = os.pipe()
    codes = []
    for number in range(int(count)):
        arm = partial(
            _arm, random.Random(chance.random()), points[number % len(points)], tell
        )
        codes.append(_live(partial(run, store, _FAR), arm))
    os.close(tell)
    with os.fdopen(told) as reports:
        names = reports.read().split("\n")[:-1]
    end = _end_of(store)
    limit = end + 3 * numbers.EPOCH_ROWS if isinstance(end, int) else 0
    last = _live(partial(run, store, limit), None)
    print(json.dumps({"points": names, "codes": codes, "last": last, "limit": limit}))


if __name__ == "__main__":
    main()
