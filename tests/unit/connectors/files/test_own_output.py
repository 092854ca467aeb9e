"""A flow that would read what it writes is refused before it writes anything."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.unit.change.test_renumbering import manifest_of

import riverlock as rl
from riverlock.core.errors import InvalidFlowError
from riverlock.driver.starting.continuing import check_not_fed
from riverlock.snapshot.catalog import Catalog
from riverlock.storage.local import LocalStorage

SINKS: dict[str, Any] = {
    "files": lambda path: rl.sinks.files(path, format="json"),
    "delta": rl.sinks.delta,
    "sqlite": lambda path: rl.sinks.sql(f"sqlite:///{path}", table="t", create=True),
}


def checked(tmp_path: Path, *, read: str, kind: str, out: str, store: str) -> None:
    flow = rl.Flow("shop")
    source = rl.sources.files(str(tmp_path / read), format="text")
    sink = SINKS[kind](str(tmp_path / out))
    flow.read(source, uid="in").write(sink, uid="out")
    assert manifest_of(flow)
    check_not_fed(flow._program, Catalog(LocalStorage(tmp_path / store)))


@pytest.mark.parametrize("kind", SINKS)
@pytest.mark.parametrize(
    ("read", "out"),
    [
        ("data", "data/out"),
        ("data", "data/deep/out"),
        ("data", "data"),
        ("data/", "data/out"),
        ("data/*", "data/out"),
        ("d*", "data/out"),
        ("data/../data", "data/out"),
    ],
)
def test_output_below_the_input_is_refused(
    tmp_path: Path, kind: str, read: str, out: str
) -> None:
    with pytest.raises(InvalidFlowError, match="read what it writes") as caught:
        checked(tmp_path, read=read, kind=kind, out=out, store="store")

    assert "sink 'out'" in caught.value.message
    assert not list(tmp_path.iterdir())


def test_so_is_a_store(tmp_path: Path) -> None:
    with pytest.raises(InvalidFlowError, match="its store"):
        checked(tmp_path, read="data", kind="files", out="out", store="data/store")


@pytest.mark.parametrize(
    ("read", "out"),
    [
        ("data", "out"),
        ("data", "database"),
        ("data/in", "data/out"),
        ("data/in/*.json", "data/in/out"),
        ("data", "data/_out"),
        ("data", "data/.hidden/out"),
        ("data/2026-*", "data/out"),
    ],
)
def test_output_elsewhere_is_fine(tmp_path: Path, read: str, out: str) -> None:
    checked(tmp_path, read=read, kind="files", out=out, store="store")
