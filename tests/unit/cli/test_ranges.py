"""Positions of sources are summed up; whole only on request."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from riverlock.cli.ranges import position, span
from riverlock.cli.text import with_instants
from riverlock.snapshot.catalog import Catalog
from riverlock.snapshot.format.records import InputRange
from riverlock.snapshot.format.sealed import seal
from riverlock.storage.local import LocalStorage


def _files(count: int, *, kept: int | None = None) -> dict[str, Any]:
    listed = [[f"/in/{n:04d}.json", 5, n] for n in range(1, count + 1)]
    return {"count": count, "base": None, "recent": listed[-(kept or count) :]}


@pytest.mark.parametrize(
    ("offset", "expected"),
    [
        (_files(40), "40 files, newest 0040.json"),
        (_files(4000, kept=10), "4,000 files, newest 4000.json"),
        ({"count": 0, "recent": [], "path": "/in"}, "0 files"),
        (
            {"topics": {}, "partitions": {"t:0": 5, "t:1": 2000}},
            "t:0 at 5, t:1 at 2,000",
        ),
        (
            {"partitions": {f"t:{n}": 1000 for n in range(12)}},
            "12 partitions, at 12,000 records in all",
        ),
        ({"row": 5000, "origin": 1}, "row 5,000"),
        ({"channel": "orders", "segment": 1}, "1 segment of channel orders"),
        ({"value": "2024-01-01", "rows": 7}, "7 rows, up to 2024-01-01"),
        (5, "5"),
        ({"mine": "x" * 200}, '{"mine":"' + "x" * 90 + "…"),
    ],
)
def test_a_position_is_a_few_words(offset: Any, expected: str) -> None:
    assert position(offset) == expected
    assert msgspec.json.decode(position(offset, full=True)) == offset


def test_what_an_epoch_read_is_what_is_new() -> None:
    assert span(_files(2), _files(40), 760) == "38 files, newest 0040.json, 760 records"
    assert span({"row": 5}, {"row": 9}, 4) == "row 5 to row 9, 4 records"
    assert (
        span(_files(2), _files(2), 0) == "nothing new after 2 files, newest 0002.json"
    )
    assert '["/in/0001.json",5,1]' in span(_files(1), _files(2), None, full=True)


def test_status_and_explain_sum_positions_up(cli: Any, shop: Path) -> None:
    catalog = Catalog(LocalStorage(shop))
    newest = catalog.newest()
    assert newest is not None
    read = InputRange(start=_files(2), end=_files(40), rows=760)
    changed = msgspec.structs.replace(newest, inputs={"orders": read})
    path = catalog.paths.manifest(newest.epoch)
    catalog.storage.delete(path)
    catalog.storage.put(path, seal(changed))

    for command in ("status", "explain"):
        assert "files, newest 0040.json" in cli(command, shop).out
        assert "/in/0039.json" not in cli(command, shop).out
        assert "/in/0039.json" in cli(command, shop, "--full").out


def test_instants_are_there_to_be_read(cli: Any, shop: Path) -> None:
    found = cli("status", shop, "--json").json

    assert found["watermark"] == "2023-11-14T22:13:20Z"
    assert found["decided"].endswith("Z")
    assert with_instants({"a_us": 1, "a": "mine"}) == {"a_us": 1, "a": "mine"}
