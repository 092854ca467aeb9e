"""What ``make check`` refuses as too long."""

from __future__ import annotations

from pathlib import Path

import pytest
from tools.size_check import main


@pytest.fixture
def project(tmp_path: Path) -> Path:
    package = tmp_path / "src" / "package"
    package.mkdir(parents=True)
    (tmp_path / "tests").mkdir()
    (package / "__init__.py").touch()
    return tmp_path


def fill(folder: Path, modules: int) -> None:
    folder.mkdir(exist_ok=True)
    for number in range(modules):
        (folder / f"m{number}.py").touch()


def function(lines: int, docstring: int = 0) -> str:
    text = ['    """What it does.', *["    more"] * (docstring - 2), '    """']
    return "\n".join(["def f():", *(text if docstring else []), *["    1"] * lines])


def test_what_is_short_passes(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (project / "src/package/m.py").write_text(function(59, docstring=40) + "\n" * 400)
    (project / "tests/test_m.py").write_text("\n" * 600)

    assert main(project) == 0
    assert capsys.readouterr().out == "sizes: 2 modules, 1 of tests, 0 too long\n"


@pytest.mark.parametrize(
    ("place", "text", "found"),
    [
        ("src/package/m.py", "\n" * 501, "module has 501 lines"),
        ("tests/test_m.py", "\n" * 601, "module has 601 lines"),
        ("src/package/m.py", function(60), "m.py:1: function f has 61 lines"),
    ],
)
def test_what_is_too_long_is_told(
    project: Path,
    capsys: pytest.CaptureFixture[str],
    place: str,
    text: str,
    found: str,
) -> None:
    (project / place).write_text(text)

    assert main(project) == 1
    assert found in capsys.readouterr().out


def test_a_package_of_many_modules_needs_parts(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    package = project / "src/package"
    fill(package, 15)
    assert main(project) == 0
    fill(package, 16)
    assert main(project) == 1
    assert "package has 16 modules and no sub-packages" in capsys.readouterr().out

    fill(package / "part", 1)
    (package / "part/__init__.py").touch()
    assert main(project) == 0


def test_the_command_line_has_a_module_per_command(project: Path) -> None:
    fill(project / "src/package/cli", 30)
    (project / "src/package/cli/__init__.py").touch()

    assert main(project) == 0


def test_a_project_without_modules_is_a_mistake_in_the_call(tmp_path: Path) -> None:
    assert main(tmp_path) == 1
