from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest


def test_changes_of_an_operator_are_shown_by_epoch(cli: Any, shop: Path) -> None:
    lines = cli("changes", shop, "0..", "pairs").out.splitlines()
    found = cli("changes", shop, "0..2", "velocity", "spent", "--json").json

    assert lines == [
        "operator pairs, after epoch 0, until 2: 2 changes",
        "epoch  change  a  b     before   after",
        '    1  upsert  x  1     {"n":1}  {"n":2}',
        '    2  upsert  y  null  null     {"n":1}',
    ]
    assert (found["since"], found["until"]) == (0, 2)
    rows = found["operators"]["velocity"]["rows"]
    assert [(r["epoch"], r["user"], r["after"]["spent"]) for r in rows] == [
        (1, "ann", 7.5),
        (2, None, 1.0),
        (2, "cleo", 2.0),
    ]


def test_changes_of_all_operators_since_a_name(cli: Any, shop: Path) -> None:
    cli("snapshot", shop, "v1", "--at", 1)

    lines = cli("changes", shop, "v1..", "--limit", 1).out.splitlines()

    assert lines[0] == "operator pairs, after epoch 1, until 2: 1 change"
    assert "operator velocity, after epoch 1, until 2: 2 changes" in lines
    assert lines[-1] == "... 1 more; --limit N shows more"


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("1",), 1, "expected FROM..TO"),
        (("..2",), 1, "expected FROM..TO"),
        (("2..1",), 1, "not before the start"),
        (("0..9",), 3, "epochs 0 to 2"),
        (("0..", "nobody"), 3, "pairs, velocity"),
    ],
)
def test_changes_that_cannot_be_shown(
    cli: Any, shop: Path, words: tuple[str, ...], code: int, said: str
) -> None:
    done = cli("changes", shop, *words)

    assert done.code == code
    assert said in done.err
