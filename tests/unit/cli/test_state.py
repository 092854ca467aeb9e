from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest


def test_state_lists_operators_with_keys_and_variables(cli: Any, shop: Path) -> None:
    done = cli("state", shop)

    assert done.code == 0
    assert "velocity  user string" in done.out
    assert "seen: map<string, bigint>" in done.out
    assert "recent: list<double> for 1 h" in done.out


def test_state_of_operator_counts_and_samples(cli: Any, shop: Path) -> None:
    found = cli("state", shop, "velocity", "--json").json

    assert found["epoch"] == 2
    assert found["variables"]["spent"]["count"] == 4
    assert len(found["variables"]["spent"]["rows"]) == 3
    assert found["variables"]["seen"]["count"] == 5
    assert found["variables"]["timers"]["count"] == 4


def test_state_of_operator_is_readable(cli: Any, shop: Path) -> None:
    out = cli("state", shop, "velocity").out

    assert "spent (double): 4 rows" in out
    assert "timers (pending)" in out


def test_state_variable_gives_typed_rows(cli: Any, shop: Path) -> None:
    rows = cli("state", shop, "velocity", "spent", "--json").json["rows"]

    spent = {r["user"]: r["spent"] for r in rows}
    assert spent == {"ann": 7.5, "ben": 5.0, "cleo": 2.0, None: 1.0}


def test_state_key_narrows_to_one_key(cli: Any, shop: Path) -> None:
    found = cli("state", shop, "velocity", "seen", "--key", "ann", "--json").json

    assert {(r["key"], r["value"]) for r in found["rows"]} == {("tea", 1), ("cocoa", 1)}


@pytest.mark.parametrize(
    ("operator", "key", "expected"),
    [
        ("velocity", '["ann"]', 1),
        ("velocity", "[null]", 1),
        ("velocity", "nobody", 0),
        ("pairs", '["x", 1]', 1),
        ("pairs", '["y", null]', 1),
        ("pairs", '["x", 3]', 0),
    ],
)
def test_state_keys_are_compared_by_type(
    cli: Any, shop: Path, operator: str, key: str, expected: int
) -> None:
    name = "spent" if operator == "velocity" else "n"
    found = cli("state", shop, operator, name, "--key", key, "--json").json

    assert found["count"] == expected


@pytest.mark.parametrize("key", ["x", '["x"]', '["x", "one"]', '["x", 1, 2]'])
def test_state_key_of_the_wrong_shape_is_the_users_error(
    cli: Any, shop: Path, key: str
) -> None:
    done = cli("state", shop, "pairs", "n", "--key", key)

    assert done.code == 1
    assert "a string, b int" in done.err


def test_state_at_goes_back_to_epoch_and_name(cli: Any, shop: Path) -> None:
    assert cli("snapshot", shop, "first", "--at", 0).code == 0

    for at in ("0", "first"):
        found = cli("state", shop, "velocity", "spent", "--at", at, "--json").json
        assert {r["user"]: r["spent"] for r in found["rows"]} == {"ann": 3, "ben": 5}


def test_state_limit_says_how_many_more(cli: Any, shop: Path) -> None:
    done = cli("state", shop, "velocity", "spent", "--limit", 1)

    assert "... 3 more" in done.out


def test_state_out_writes_all_rows(cli: Any, shop: Path, tmp_path: Path) -> None:
    out = tmp_path / "spent.parquet"

    done = cli("state", shop, "velocity", "spent", "--limit", 1, "--out", out)

    assert done.code == 0
    assert pq.read_table(out).num_rows == 4


def test_state_timers_are_rows(cli: Any, shop: Path) -> None:
    found = cli("state", shop, "velocity", "timers", "--key", "ben", "--json").json

    assert found["count"] == 1
    assert found["rows"][0]["user"] == "ben"


@pytest.mark.parametrize(
    ("words", "meant"),
    [(["velocty"], "'velocity'"), (["velocity", "spend"], "'spent'")],
)
def test_state_suggests_a_name(
    cli: Any, shop: Path, words: list[str], meant: str
) -> None:
    done = cli("state", shop, *words)

    assert done.code == 3
    assert f"did you mean {meant}?" in done.err


def test_state_of_unknown_epoch_says_what_there_is(cli: Any, shop: Path) -> None:
    done = cli("state", shop, "--at", 9)

    assert done.code == 3
    assert "epochs 0 to 2" in done.err


@pytest.mark.parametrize("words", [["--key", "x"], ["--out", "x.parquet"]])
def test_state_options_that_need_more_are_refused(
    cli: Any, shop: Path, words: list[str]
) -> None:
    assert cli("state", shop, *words).code == 1


def test_an_epoch_is_named_with_the_store_or_by_an_option(cli: Any, shop: Path) -> None:
    assert cli("state", f"{shop}@1", "--json").json["epoch"] == 1
    assert cli("state", shop, "--at", "1", "--json").json["epoch"] == 1
    assert cli("state", f"{shop}@1", "--at", "1").code == 1
    assert "riverlock state STORE" in cli("state", shop, "nobody").err
