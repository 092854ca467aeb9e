from __future__ import annotations

import ast
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_drawing_of_rooms_is_the_contract_of_imports() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    contracts = {c["id"]: c for c in project["tool"]["importlinter"]["contracts"]}
    layers = [
        {room.strip() for room in layer.split("|")}
        for layer in contracts["layers"]["layers"]
    ]

    drawn = _drawn_rooms()

    assert len(drawn) == len(set(drawn))
    for layer in layers:
        # Rooms of one layer do not know each other: they may be drawn in any order.
        rooms, drawn = drawn[: len(layer)], drawn[len(layer) :]
        assert set(rooms) == layer
    assert not drawn


def test_no_contract_has_exceptions() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())

    for contract in project["tool"]["importlinter"]["contracts"]:
        assert not {"ignore_imports", "exhaustive_ignores"} & set(contract)
    assert any(
        c.get("exhaustive") for c in project["tool"]["importlinter"]["contracts"]
    )


def test_no_import_by_name_points_up() -> None:
    """The contracts do not see names that are imported as text."""
    source = ROOT / "src" / "riverlock"
    found: dict[str, set[str]] = {}
    for file in source.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Call) and _imports_by_name(node):
                place = str(file.relative_to(source))
                found.setdefault(place, set()).add(ast.unparse(node.args[0]))

    # The door loads what is asked for, a command is loaded when it is called; packages
    # of others, and modules of users, are known by their names alone.
    assert found.pop("cli/__init__.py") == {"f'riverlock.cli.{module}'"}
    assert found.keys() == {
        "__init__.py",
        "connectors/kafka/values/protobuf.py",
        "core/extras.py",
    }
    del found["__init__.py"]
    assert "riverlock" not in str(found)


def _imports_by_name(call: ast.Call) -> bool:
    name = call.func.attr if isinstance(call.func, ast.Attribute) else call.func
    name = name.id if isinstance(name, ast.Name) else name
    return name in ("import_module", "__import__")


def _drawn_rooms() -> list[str]:
    text = (ROOT / "docs" / "architecture.md").read_text()
    block = text.split("## Rooms", 1)[1].split("```", 2)[1]
    names = [line.split("  ")[0] for line in block.strip().splitlines()]
    return [name.strip().rstrip("/") for each in names for name in each.split(",")]
