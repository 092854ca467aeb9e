"""Commands for stores whose flows are joined by channels."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.unit.driver.ledger_flow import transfers
from tests.unit.driver.test_joined_flows import credits, debits, run


@pytest.fixture
def places(tmp_path: Path) -> tuple[str, str]:
    a, b = str(tmp_path / "a"), str(tmp_path / "b")
    run(debits(transfers(10)), a)
    run(credits(a), b)
    return a, b


def test_readers_are_listed_and_removed(cli: Any, places: tuple[str, str]) -> None:
    a, b = places

    (found,) = cli("readers", a, "--json").json

    assert (found["name"], found["channel"], found["epoch"]) == ("credits", "sent", 0)
    assert "credits" in cli("readers", a).out
    assert "no other flow" in cli("readers", b).out
    assert cli("readers", a, "--forget", "nobody").code == 3
    assert "no other flow" in cli("readers", a, "--forget", "credits").out


def test_one_snapshot_is_taken_over_several_stores(
    cli: Any, places: tuple[str, str]
) -> None:
    a, b = places
    writer = debits(transfers(30)).start(a, execution="local")
    reader = credits(a).start(b, execution="local")
    try:
        done = cli("snapshot", a, b, "v1", "--protocol", "drain")
        facts = cli("snapshot", a, b, "v2", "--json").json
    finally:
        reader.stop()
        writer.stop()

    assert done.code == 0
    assert "0 rows in flight" in done.out
    assert set(facts["stores"]) == {a, b}
    assert cli("snapshot", a, b, "v3", "--drop").code == 1
    assert cli("snapshot", b, "v1", "--drop").code == 0
