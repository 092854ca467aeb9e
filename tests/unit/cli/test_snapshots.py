from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from riverlock.cli.ranges import brief_range


def test_snapshots_lists_epochs_with_names(cli: Any, shop: Path) -> None:
    assert cli("snapshot", shop, "v1", "--note", "why").code == 0

    rows = cli("snapshots", shop, "--json").json

    assert [r["epoch"] for r in rows] == [0, 1, 2]
    assert rows[2]["names"] == ["v1"]
    assert rows[1]["rows"] == 3
    assert rows[1]["seconds"] == 1.0
    assert 0 < rows[1]["added_bytes"] < rows[1]["state_bytes"]


def test_snapshots_is_a_table(cli: Any, shop: Path) -> None:
    out = cli("snapshots", shop).out

    heading, *rows = out.splitlines()
    assert heading.split()[:3] == ["epoch", "decided", "age"]
    assert len(rows) == 3
    assert "2023-11-14T22:13:21Z" in rows[0]


def test_snapshots_tells_what_each_epoch_read(cli: Any, shop: Path) -> None:
    ranges = [
        tuple((uid, r["start"], r["end"]) for uid, r in row["inputs"].items())
        for row in cli("snapshots", shop, "--json").json
    ]
    heading, *rows = cli("snapshots", shop).out.splitlines()

    at = heading.index("read")
    assert all(ranges)
    for row, mine in zip(rows, ranges, strict=True):
        for uid, start, end in mine:
            assert f"{uid} {brief_range(start, end)}" in row[at:]


@pytest.mark.parametrize(
    ("start", "end", "expected"),
    [
        (3, 7, "3 to 7"),
        (3, 3, ""),
        (None, 7, "0 to 7"),
        ({"row": 1}, {"row": 5}, "1 to 5"),
        (
            {"count": 0, "base": None, "recent": [], "path": "in"},
            {"count": 2, "base": "a/b", "recent": [["x", 1, 2]], "path": "in"},
            "0 to 2",
        ),
        (
            {"partitions": {}},
            {"partitions": {f"t-{n}": n for n in range(1, 6)}},
            "t-1 0 to 1, t-2 0 to 2, t-3 0 to 3 and 2 more",
        ),
        ({"value": "b", "x": 1}, {"value": "d", "x": 1}, "b to d"),
        ({"value": {"date": "1"}}, {"value": {"date": "2"}}, "1 to 2"),
    ],
)
def test_a_range_in_a_few_words(start: Any, end: Any, expected: str) -> None:
    assert brief_range(start, end) == expected


def test_snapshots_shows_a_damaged_manifest_and_goes_on(cli: Any, shop: Path) -> None:
    manifest = shop / "regions/main/epochs/000000000001.json"
    manifest.write_bytes(manifest.read_bytes().replace(b'"seed":1', b'"seed":2'))

    done = cli("snapshots", shop)

    assert done.code == 0
    assert "DAMAGED" in done.out.splitlines()[2]


def test_snapshot_name_is_taken_once(cli: Any, shop: Path) -> None:
    assert cli("snapshot", shop, "v1", "--json").json == {
        "name": "v1",
        "epoch": 2,
        "note": "",
    }

    again = cli("snapshot", shop, "v1")

    assert again.code == 1
    assert "a new name" in again.err


def test_snapshot_of_an_epoch_that_is_named_with_the_store(
    cli: Any, shop: Path
) -> None:
    done = cli("snapshot", f"{shop}@1", "v1", "--json")
    again = cli("snapshot", f"{shop}@v1", "v2", "--json")

    assert (done.json["epoch"], again.json["epoch"]) == (1, 1)
    assert cli("snapshot", f"{shop}@1", "v3", "--at", "1").code == 1


def test_an_epoch_where_a_store_is_meant_is_told(cli: Any, shop: Path) -> None:
    for command in ("snapshots", "verify", "status", "forks"):
        done = cli(command, f"{shop}@1")

        assert done.code == 1
        assert "leave out @1" in done.err
    assert cli("snapshots", f"{shop}x@1").code == 3


def test_snapshot_of_unknown_epoch_pins_nothing(cli: Any, shop: Path) -> None:
    assert cli("snapshot", shop, "v1", "--at", 77).code == 3
    assert not (shop / "snapshots").exists()
