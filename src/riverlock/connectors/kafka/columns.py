"""The columns of a Kafka record."""

from __future__ import annotations

from typing import Final

__all__ = ["COLUMNS"]

COLUMNS: Final = (
    "key binary, value binary, headers array<struct<key string, value binary>>,"
    " topic string, partition int, offset bigint, timestamp timestamp"
)
