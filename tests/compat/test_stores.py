"""Stores that released formats have left: they stay readable for ever.

``stores/v1`` was written by ``Old`` of ``tests/integration/test_upgrade.py`` over the
numbers 0 to 99, in two epochs; its host name was taken out. ``stores/v1-full`` was
written later in the same format, by ``frozen.py``, and has most of what a store can
have. Never edit them.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from tests.compat.everything import BEGIN, Model, plain
from tests.compat.frozen import ROWS, contents, thawed
from tests.compat.reader import read

import riverlock as rl
from riverlock.core.errors import UnsupportedFormatError
from riverlock.snapshot.catalog import Catalog
from riverlock.snapshot.format.sealed import seal
from riverlock.snapshot.state_reader import read_entries
from riverlock.snapshot.verbs.verify import verify
from riverlock.state.copy.rebuilding import changes_of
from riverlock.storage import LocalStorage

V1 = Path(__file__).with_name("stores") / "v1"
FULL = V1.with_name("v1-full")


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


@pytest.fixture
def full(tmp_path: Path) -> list[Path]:
    """The stores of ``v1-full``, where they can be read: a parent and its fork."""
    return thawed(FULL, tmp_path)


def test_full_stores_say_what_they_said(full: list[Path]) -> None:
    expected = json.loads((FULL / "expected.json").read_text())

    for store in full:
        assert contents(rl.open(str(store))) == expected[store.name]
        assert rl.stores.verify(str(store)).is_whole


def test_full_stores_have_what_they_are_there_for(full: list[Path]) -> None:
    parent, fork = (rl.open(str(store)) for store in full)
    found = parent.at().manifest.operators
    files = {uid: state.files for uid, state in found.items()}

    assert {"everything", "minutes", "sessions", "many", "words"} == set(found)
    assert any(f.footer is not None for f in files["many"])
    assert any(f.first_epoch < f.last_epoch for f in files["everything"])
    assert any(f.shared for f in files["everything"])
    assert found["many"].parameters["factor"].in_force == 3
    assert [named.name for named in parent.snapshots()] == ["early"]
    assert parent.channels() == ["lines"]
    referred = [f for s in fork.at().manifest.operators.values() for f in s.files]
    assert any(f.path.startswith("parents/") for f in referred)
    size = sum(path.stat().st_size for path in FULL.rglob("*") if path.is_file())
    assert size < 300_000


def test_full_store_is_what_plain_python_says(full: list[Path]) -> None:
    parent, _ = full
    model = Model()
    for n in range(ROWS):
        model.row(n, BEGIN)

    assert plain(read(parent, "everything")) == model.view(BEGIN)


def test_full_stores_are_looked_up_compared_and_forked(
    full: list[Path], tmp_path: Path
) -> None:
    parent, fork = (str(store) for store in full)
    early = rl.open(parent).at("early").manifest.inputs["rows"].end["row"]

    for n in (0, early, ROWS - 1):
        scaled = rl.open(parent).state("many", "scaled").get(n)
        assert [row["scaled"] for row in scaled] == [n if n < early else 3 * n]
    many = rl.stores.diff(f"{parent}@early", fork, operator="many")
    after = rl.open(fork).at().manifest.inputs["rows"].end["row"]
    changed = {change.key["id"] for change in many.changes if change.key}
    assert changed == set(range(early, after))
    touched = rl.stores.touches(fork, "many", str(early))
    assert [t.first <= 2 <= t.last for t in touched] == [True]
    rl.stores.fork(f"{fork}@{rl.open(fork).epochs()[-1]}", str(tmp_path / "third"))
    third = contents(rl.open(str(tmp_path / "third")))
    (mine,) = third["epochs"].values()
    assert mine == contents(rl.open(fork))["epochs"][max(third["epochs"])]
