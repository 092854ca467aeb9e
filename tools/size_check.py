"""Fail when a module, function or package has grown beyond what a reader can hold.

In ``src`` a module may have 500 lines, a function 60, its docstring apart, and a
package 15 modules unless some of it is in sub-packages. In ``tests`` a module may have
600 lines.
"""

from __future__ import annotations

import ast
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

MODULE_LINES: Final = 500
TEST_MODULE_LINES: Final = 600
FUNCTION_LINES: Final = 60
PACKAGE_MODULES: Final = 15
# A module per command: what a command does is found by its name.
ANY_NUMBER: Final = frozenset({"cli"})

Function = ast.FunctionDef | ast.AsyncFunctionDef


def function_lines(node: Function) -> int:
    """Count the lines of a function from ``def``, without its docstring."""
    lines = (node.end_lineno or node.lineno) - node.lineno + 1
    first = node.body[0]
    is_docstring = (
        isinstance(first, ast.Expr)
        and isinstance(first.value, ast.Constant)
        and isinstance(first.value.value, str)
    )
    if is_docstring:
        lines -= (first.end_lineno or first.lineno) - first.lineno + 1
    return lines


def long_module(path: Path, most: int) -> Iterator[str]:
    """Yield that a module is too long."""
    lines = len(path.read_text(encoding="utf-8").splitlines())
    if lines > most:
        yield f"{path}: module has {lines} lines, at most {most} are allowed"


def long_functions(path: Path) -> Iterator[str]:
    """Yield the functions of a module that are too long."""
    text = path.read_text(encoding="utf-8")
    for node in ast.walk(ast.parse(text, filename=str(path))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            count = function_lines(node)
            if count > FUNCTION_LINES:
                yield (
                    f"{path}:{node.lineno}: function {node.name} has {count} lines, "
                    f"at most {FUNCTION_LINES} are allowed"
                )


def full_package(init: Path) -> Iterator[str]:
    """Yield that a package has too many modules and no sub-package."""
    package = init.parent
    count = sum(path != init for path in package.glob("*.py"))
    has_parts = any(package.glob("*/__init__.py"))
    if count > PACKAGE_MODULES and not has_parts and package.name not in ANY_NUMBER:
        yield (
            f"{package}: package has {count} modules and no sub-packages, "
            f"at most {PACKAGE_MODULES} are allowed"
        )


def complaints(path: Path) -> Iterator[str]:
    """Yield what is too long in one module of ``src``, and in its package."""
    yield from long_module(path, MODULE_LINES)
    yield from long_functions(path)
    if path.name == "__init__.py":
        yield from full_package(path)


def main(root: Path) -> int:
    """Check a project; return the exit status."""
    modules = sorted((root / "src").rglob("*.py"))
    tests = sorted((root / "tests").rglob("*.py"))
    found = [complaint for path in modules for complaint in complaints(path)]
    found += [c for path in tests for c in long_module(path, TEST_MODULE_LINES)]
    for complaint in found:
        print(complaint)
    counts = f"{len(modules)} modules, {len(tests)} of tests"
    print(f"sizes: {counts}, {len(found)} too long")
    return 1 if found or not modules else 0


if __name__ == "__main__":
    sys.exit(main(Path()))
