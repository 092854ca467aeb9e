"""Values as people read them."""

from __future__ import annotations

from riverlock.cli import text
from riverlock.core.times import END_US


def test_a_watermark_says_when_the_input_has_ended() -> None:
    assert text.watermark(None) == "none"
    assert text.watermark(END_US) == "at the end of the input"
    assert text.watermark(0, 60_000_000).startswith("1970-01-01T00:00:00Z (")
