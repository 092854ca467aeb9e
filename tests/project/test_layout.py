"""Unit tests are found where the code is that they test."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCE, UNIT = ROOT / "src" / "riverlock", ROOT / "tests" / "unit"


def test_every_folder_of_unit_tests_is_a_package() -> None:
    folders = {path.parent.relative_to(UNIT) for path in UNIT.rglob("*.py")}

    assert [str(f) for f in folders if not (SOURCE / f / "__init__.py").exists()] == []


def test_unit_tests_named_for_a_module_are_in_its_package() -> None:
    packages = defaultdict(set)
    for path in SOURCE.rglob("*.py"):
        packages[path.stem].add(path.parent.relative_to(SOURCE))
    for folder in SOURCE.rglob("*/"):
        # Tests of a package as a whole are beside it or in it.
        place = folder.relative_to(SOURCE)
        packages[folder.name] |= {place, place.parent}
    elsewhere = {
        str(path.relative_to(UNIT)): sorted(map(str, packages[name]))
        for path in UNIT.rglob("test_*.py")
        if (name := path.stem.removeprefix("test_")) in packages
        and path.parent.relative_to(UNIT) not in packages[name]
    }

    assert elsewhere == {}
