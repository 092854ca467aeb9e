"""A few random kills on every change; the script does hundreds."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from tests.chaos.random_kills import run
from tests.chaos.victims import WindowsVictim, WorkerVictim

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(1_200)]


def test_random_kills_lose_and_duplicate_nothing(tmp_path: Path) -> None:
    summary = run(WorkerVictim(tmp_path, 2), 2, seed=20)

    assert summary.is_exact
    assert summary.verdict.epochs >= 3


def test_random_kills_of_windows_joins_and_tables_lose_nothing(tmp_path: Path) -> None:
    victim = WindowsVictim(tmp_path, 2)
    summary = run(victim, 2, seed=2)

    assert summary.is_exact, summary.verdict.details
    assert summary.verdict.rows > 10_000

    with closing(sqlite3.connect(tmp_path / "tables.db")) as database, database:
        some = "rowid in (select rowid from pairs limit 5)"
        database.execute(f"insert into pairs select * from pairs where {some}")
        database.execute("delete from sessions where buyer = 7")
    verdict = victim.verdict()

    assert verdict.duplicated == 5, "rows that are there twice are not noticed"
    assert verdict.lost > 0, "rows that are gone are not noticed"
