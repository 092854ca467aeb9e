"""Databases under outages and lost answers: tables equal the oracle's."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.chaos import numbers
from tests.chaos.beside import running
from tests.databases.places import Place, mariadb_place, postgres_place
from tests.servers.mariadb import PASSWORD as MARIADB_PASSWORD
from tests.servers.postgres import PASSWORD as POSTGRES_PASSWORD
from tests.servers.proxy import CuttingProxy

pytestmark = pytest.mark.chaos

OUTAGE_SECONDS = float(os.environ.get("RIVERLOCK_OUTAGE_SECONDS", "0.5"))
OWN_TABLES = {"numbers", "totals", "riverlock_epochs"}
SERVERS: dict[str, Callable[[Any], Place]] = {
    "postgres": postgres_place,
    "mariadb": mariadb_place,
}


def assert_equals_the_oracle(place: Place, end: int) -> None:
    rows, sums = place.snapshot(
        "SELECT n, name FROM {}numbers ORDER BY n", "SELECT k, total FROM {}totals"
    )
    assert [tuple(r) for r in rows] == [(n, f"number {n}") for n in range(end)]
    assert dict(sums) == numbers.totals(end)
    assert place.tables() == OWN_TABLES, "left behind"


@pytest.mark.parametrize("name", ["postgres", "mariadb"])
def test_an_outage_is_waited_out(
    name: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    server = request.getfixturevalue(name)
    place = SERVERS[name](server)
    limit = 100 * numbers.EPOCH_ROWS
    sinks = numbers.sinks_of(place.url, place.schema)

    with running(tmp_path / "store", sinks, limit, hold_at=2) as statuses:
        statuses.wait_for(lambda s: s.epoch == 2)
        statuses.let_go()
        server.stop(signal.SIGKILL)  # a crash; also of transactions under way
        try:
            waiting = statuses.wait_for(lambda s: s.state == "waiting")
            time.sleep(OUTAGE_SECONDS)
        finally:
            server.start()

    assert waiting.error is not None
    assert "waiting for sink" in waiting.error
    assert "does not answer" in waiting.error or "CommitUnknown" in waiting.error
    told = " ".join(str(s) for s in statuses.all)
    assert POSTGRES_PASSWORD not in told
    assert MARIADB_PASSWORD not in told
    last = statuses.all[-1]
    assert (last.state, last.error) == ("stopped", None)
    assert_equals_the_oracle(place, limit)


@pytest.mark.parametrize("name", ["postgres", "mariadb"])
def test_commits_whose_answer_is_lost_happen_once(
    name: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    server = request.getfixturevalue(name)
    place = SERVERS[name](server)
    limit = 12 * numbers.EPOCH_ROWS
    proxy = CuttingProxy(server.socket)
    sinks = numbers.sinks_of(server.url(proxy.port), place.schema)

    try:
        with running(tmp_path / "store", sinks, limit, hold_at=0) as statuses:
            statuses.wait_for(lambda s: s.epoch is not None)
            proxy.is_on = True
        # The answer to the last sweep may be lost, too: the next commit sweeps.
        proxy.is_on = False
        limit += numbers.EPOCH_ROWS
        numbers.run(tmp_path / "store", sinks, limit=limit)
    finally:
        proxy.close()

    assert min(proxy.cuts.values()) >= 2, f"too few cuts: {proxy.cuts}"
    told = [s.error for s in statuses.all if s.state == "waiting"]
    assert [t for t in told if t and "CommitUnknownError" in t]
    assert_equals_the_oracle(place, limit)
