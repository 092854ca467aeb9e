"""The user's own line: where in a stack or traceback code is neither ours nor Python's.

Frames are told apart by their files. An installed package counts only where nothing
else is there, since a user's code may be one.
"""

from __future__ import annotations

import linecache
import os
import re
import sys
import sysconfig
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import FrameType, TracebackType

__all__ = ["calling_line", "function_line", "generator_line", "raising_line"]

_OURS = str(Path(__file__).resolve().parents[1])
_PYTHON = tuple(
    {
        str(Path(os.__file__).parent) + os.sep,
        sysconfig.get_path("stdlib") + os.sep,
        sysconfig.get_path("scripts") + os.sep,
    }
)
_INSTALLED = ("site-packages", "dist-packages")
# Libraries that run user code, or that we call: their lines help nobody.
_CARRIERS = tuple(
    f"{folder}{os.sep}{name}{os.sep}"
    for folder in _INSTALLED
    for name in ("pyspark", "py4j", "pyarrow", "_pytest", "pluggy", "click")
)
# Text that was compiled at run time: ours, and Python's frozen modules.
_MADE = ("<turns>", "<frozen ")
# A line may have a URL with a password, or with a token in its path.
_ADDRESS = re.compile(r"\b(?!sqlite|file|s3)(\w[\w+.-]*://)[^\s\"']*")
_SECRET = re.compile(
    r"(\w*(?:passw|secret|token)[\w.-]*[\"']?\s*[=:]\s*)([\"']).*?\2", re.IGNORECASE
)


def calling_line() -> str:
    """Return the line of the user's that led to this call; empty: there is none."""
    frame: FrameType | None = sys._getframe(1)
    found = []
    while frame is not None:
        found.append((frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name))
        frame = frame.f_back
    return _chosen(found)


def raising_line(trace: TracebackType | None) -> str:
    """Return the innermost line of the user's in a traceback; empty: there is none."""
    frames = reversed(traceback.extract_tb(trace))
    return _chosen([(f.filename, f.lineno or 0, f.name) for f in frames])


def generator_line(rows: object) -> str:
    """Return the line of the ``yield`` at which a generator waits, if it is one."""
    frame: FrameType | None = getattr(rows, "gi_frame", None)
    if frame is None:
        return ""
    code = frame.f_code
    return _chosen([(code.co_filename, frame.f_lineno, code.co_name)])


def function_line(function: Any) -> str:
    """Return where a function, or what can be called like one, is defined."""
    function = getattr(function, "__wrapped__", function)
    if not hasattr(function, "__code__"):
        function = vars(type(function)).get("__call__")
    code = getattr(function, "__code__", None)
    if code is None:
        return ""
    return _chosen([(code.co_filename, code.co_firstlineno, code.co_name)])


def _chosen(frames: Iterable[tuple[str, int, str]]) -> str:
    """Return the innermost frame that is the user's, as text."""
    theirs = [f for f in frames if _may_be_users(f[0]) and not _is_generated(f)]
    own = [f for f in theirs if not any(part in f[0] for part in _INSTALLED)]
    for name, number, function in own or theirs:
        text = _masked(linecache.getline(name, number).strip())
        return f"{name}:{number} in {function}: {text}".removesuffix(": ")
    return ""


def _masked(text: str) -> str:
    """Return a line of code without what may be secret.

    >>> _masked("sql('mysql://me:pw@db/shop', table='t')"), _masked("f(password='x')")
    ("sql('mysql://***', table='t')", "f(password='***')")
    """
    return _SECRET.sub(r"\1\2***\2", _ADDRESS.sub(r"\1***", text))


def _may_be_users(name: str) -> bool:
    if name.startswith((_OURS, *_MADE)) or any(part in name for part in _CARRIERS):
        return False
    is_installed = any(part in name for part in _INSTALLED)
    return is_installed or not name.startswith(_PYTHON)


def _is_generated(frame: tuple[str, int, str]) -> bool:
    """Tell methods of dataclasses from text that ``python -c`` was given."""
    return frame[0] == "<string>" and frame[2].startswith("__")
