"""Every transcript is played; a new one needs no code."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.unit.coordinator.script import play

HERE = Path(__file__).resolve()
TRANSCRIPTS = sorted((HERE.parents[2] / "transcripts" / "coordinator").glob("*.txt"))


@pytest.mark.parametrize("path", TRANSCRIPTS, ids=lambda p: p.stem)
def test_transcript_is_followed(path: Path) -> None:
    play(path)


def test_transcripts_exist() -> None:
    assert len(TRANSCRIPTS) >= 10
