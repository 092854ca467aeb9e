"""A few random kills on every change; the script does hundreds."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.chaos.random_kills import run

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(1_200)]


def test_random_kills_lose_and_duplicate_nothing(tmp_path: Path) -> None:
    summary = run(2, seed=20, root=tmp_path)

    assert summary.verdict.lost == summary.verdict.duplicated == 0
    assert summary.verdict.epochs >= 3
