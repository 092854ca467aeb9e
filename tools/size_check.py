"""Fail when a module or function has grown beyond what a reader can hold.

A module may have 600 lines and a function 60, its docstring apart.
"""

from __future__ import annotations

import ast
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

MODULE_LINES: Final = 600
FUNCTION_LINES: Final = 60

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


def complaints(path: Path) -> Iterator[str]:
    """Yield what is too long in one module."""
    text = path.read_text(encoding="utf-8")
    lines = len(text.splitlines())
    if lines > MODULE_LINES:
        yield f"{path}: module has {lines} lines, at most {MODULE_LINES} are allowed"
    for node in ast.walk(ast.parse(text, filename=str(path))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            count = function_lines(node)
            if count > FUNCTION_LINES:
                yield (
                    f"{path}:{node.lineno}: function {node.name} has {count} lines, "
                    f"at most {FUNCTION_LINES} are allowed"
                )


def main(roots: list[str]) -> int:
    """Check every module below the roots; return the exit status."""
    modules = [path for root in roots for path in sorted(Path(root).rglob("*.py"))]
    found = [complaint for path in modules for complaint in complaints(path)]
    for complaint in found:
        print(complaint)
    print(f"sizes: {len(modules)} modules, {len(found)} too long")
    return 1 if found or not modules else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:] or ["src"]))
