"""Packages that come with an extra of ours, and may not be there."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from riverlock.core.errors import InvalidConfigError

__all__ = ["load_extra"]


def load_extra(module: str, *, extra: str, needed_for: str) -> Any:
    """Import a module of an optional package; return the package.

    Raises:
        InvalidConfigError: It is not installed.
    """
    package = module.partition(".")[0]
    try:
        import_module(module)
        return import_module(package)
    except ImportError as error:
        raise InvalidConfigError(
            needed_for,
            expected=f"the package {package}",
            found="none installed",
            hint=f"install it with: pip install 'riverlock[{extra}]'",
        ) from error
