"""Stores that released formats have left: they stay readable for ever.

``stores/v1`` was written by ``Old`` of ``tests/integration/test_upgrade.py`` over the
numbers 0 to 99, in two epochs; its host name was taken out. Never edit it.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from tests.compat.reader import read

from riverlock.core.errors import UnsupportedFormatError
from riverlock.snapshot.catalog import Catalog
from riverlock.snapshot.reader import read_entries
from riverlock.snapshot.sealed import seal
from riverlock.snapshot.verify import verify
from riverlock.state.restore import changes_of
from riverlock.storage import LocalStorage

V1 = Path(__file__).with_name("stores") / "v1"


def by_key(rows: list[dict[str, Any]]) -> dict[int, list[Any]]:
    found: dict[int, list[Any]] = {}
    for row in rows:
        found.setdefault(row["key"]["k"], []).append(row["value"])
    return found


def test_version_1_says_what_it_said() -> None:
    state = read(V1, "old")

    mine = {k: list(range(k, 100, 7)) for k in range(7)}
    assert by_key(state["n"]) == {k: [len(m)] for k, m in mine.items()}
    assert by_key(state["price"]) == {k: [m[-1] / 2] for k, m in mine.items()}
    assert by_key(state["last"]) == {k: [m[-1]] for k, m in mine.items()}
    items = {k: [v["value"] for v in vs] for k, vs in by_key(state["items"]).items()}
    # The fifth element empties the list.
    kept = {k: m[len(m) - len(m) % 5 :] for k, m in mine.items()}
    assert items == {k: m for k, m in kept.items() if m}
    words = [sum(v["value"] for v in vs) for vs in by_key(state["counts"]).values()]
    assert sum(words) == 100
    assert sum(row["value"] for row in state["broadcast"]) == 100
    assert {row["value"]["kind"] for row in state["timers"]} == {"processing"}


def test_version_1_is_whole_and_can_be_restored() -> None:
    from tests.integration.test_upgrade import Old

    from riverlock.core.types import schema_of
    from riverlock.state.layout import StateLayout
    from riverlock.state.spec import specs_of

    catalog = Catalog(LocalStorage(V1))
    newest = catalog.resolve(None)
    state = newest.operators["old"]

    entries = read_entries(catalog.storage, state, now_us=newest.now_us)
    assert entries is not None
    layout = StateLayout(schema_of(state.keys), specs_of(Old))
    changes = changes_of(entries, layout)

    assert [report.epoch for report in verify(catalog) if report.is_whole] == [0, 1]
    assert len(changes.puts) == entries.num_rows > 50
    assert len(changes.timers) > 7


def test_a_newer_format_is_refused_with_the_version_that_it_needs(
    tmp_path: Path,
) -> None:
    import msgspec

    shutil.copytree(V1, tmp_path / "store")
    storage = LocalStorage(tmp_path / "store")
    newer = msgspec.structs.replace(Catalog(storage).flow(), format=2)
    storage.put("flow.json", seal(newer))

    with pytest.raises(UnsupportedFormatError, match="2"):
        Catalog(storage).flow()
