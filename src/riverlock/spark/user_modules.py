"""User modules that workers cannot import travel with the program."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark import cloudpickle

if TYPE_CHECKING:
    from types import ModuleType

__all__ = ["send_by_value"]


def send_by_value(module: ModuleType, folder: Path) -> list[str]:
    """Send what a module and its neighbours define to workers, not just their names.

    A worker would otherwise import the file again, and run its module-level code, or
    not find it at all.

    Args:
        module: The user's module; must be in ``sys.modules``.
        folder: Modules loaded from below it are sent too, but no installed packages.

    Returns:
        The names of the modules.
    """
    found = [module]
    for other in list(sys.modules.values()):
        file = getattr(other, "__file__", None)
        if file and other is not module and _is_below(Path(file), folder):
            found.append(other)
    for each in found:
        cloudpickle.register_pickle_by_value(each)  # type: ignore[no-untyped-call]
    return [each.__name__ for each in found]


def _is_below(file: Path, folder: Path) -> bool:
    if not file.is_relative_to(folder):
        return False
    inside = file.relative_to(folder).parts
    ours = Path(__file__).parents[1]
    installed = {"site-packages", "dist-packages"} & set(inside)
    return not installed and not file.is_relative_to(ours)
