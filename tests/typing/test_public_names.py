"""Every public name is used in what the type checkers look at."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import riverlock as rl

FILES = [Path(__file__).with_name(name) for name in ("flows.py", "tested.py")]


def _used() -> set[str]:
    """Return the attributes that are used, with the dots before them: ``rl.Flow``."""
    found: set[str] = set()
    for path in FILES:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Attribute):
                found |= {ast.unparse(node), f".{node.attr}"}
            elif isinstance(node, ast.FunctionDef):
                found.add(f".{node.name}")
    return found


def test_every_public_name_is_used() -> None:
    assert {f"rl.{name}" for name in rl.__all__} - _used() == set()


@pytest.mark.parametrize("module", ["sinks", "sources", "stores", "tables", "testing"])
def test_every_name_of_a_module_is_used(module: str) -> None:
    names = {f"rl.{module}.{name}" for name in getattr(rl, module).__all__}

    assert names - _used() == set()


@pytest.mark.parametrize(
    "kind",
    [
        *(rl.Flow, rl.Stream, rl.KeyedStream, rl.WindowedStream, rl.Context, rl.Handle),
        *(rl.Process, rl.TwoInputProcess, rl.Aggregator, rl.testing.Harness),
    ],
)
def test_every_method_is_used(kind: type) -> None:
    # Of the harness, `output` and `keys` are both; attributes of a class are not here.
    public = {f".{n}" for n in dir(kind) if not n.startswith("_")}

    assert public - _used() - {".output", ".columns"} == set()


def test_users_import_nothing_else() -> None:
    imported = {
        node.module or ""
        for path in FILES
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ImportFrom)
    }

    assert {name for name in imported if name.startswith("riverlock")} == set()
