"""The pictures of docs/snapshots.md are those that our own drawing makes."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).parents[2]


def drawn_by(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / "tools" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_pictures_are_those_that_the_tool_draws() -> None:
    made = drawn_by("protocol_drawings").drawings()
    folder = ROOT / "docs" / "drawings"
    stored = {path.name: path.read_text() for path in folder.iterdir()}
    assert stored == made, "run python tools/protocol_drawings.py"


def test_every_picture_is_shown() -> None:
    text = (ROOT / "docs" / "snapshots.md").read_text()
    pictures = {path.name for path in (ROOT / "docs" / "drawings").iterdir()}
    assert {name for name in pictures if f"(drawings/{name})" in text} == pictures
