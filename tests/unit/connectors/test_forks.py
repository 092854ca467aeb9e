"""A fork reads what its origin reads: it must not write where that writes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import riverlock as rl
from riverlock.core.errors import InvalidConfigError
from riverlock.storage.local import LocalStorage
from riverlock.testing import SinkRun

Make = Callable[[Path, str], Any]


def sqlite(folder: Path, name: str) -> Any:
    url = f"sqlite:///{folder}/out.db"
    return rl.sinks.sql(url, table=name, create=True)


def delta(folder: Path, name: str) -> Any:
    return rl.sinks.delta(str(folder / name))


def files(folder: Path, name: str) -> Any:
    return rl.sinks.files(str(folder / name), format="json")


@pytest.mark.parametrize("make", [sqlite, delta, files])
def test_a_fork_is_refused_where_its_origin_writes(make: Make, tmp_path: Path) -> None:
    def run(number: int, **more: Any) -> SinkRun:
        name = more.pop("name", "out")
        store = LocalStorage(tmp_path / more["flow"])
        return SinkRun(sink=make(tmp_path, name), storage=store, run=number, **more)

    origin = run(1, flow="first")
    voted = origin.stage(1, [(1, "a", 1)])
    origin.commit(1, voted)

    with pytest.raises(InvalidConfigError, match=r"another (place|directory)"):
        run(1, flow="fork", origin="first")

    for number in (1, 2):  # its own place is its own in later runs too
        own = run(number, flow="fork", origin="first", name="trial")
        own.commit(number + 1, own.stage(number + 1, [(number, "b", 2)]))
    run(2, flow="first").commit(1, voted)
