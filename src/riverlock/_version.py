"""The version, in one place so that packaging and code cannot disagree."""

from __future__ import annotations

__all__ = ["__version__"]

__version__ = "0.1.0"
