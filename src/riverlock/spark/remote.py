"""Errors across the JVM: raised in a worker, shown in the driver as they were."""

from __future__ import annotations

import base64
import pickle
import re
from contextlib import contextmanager
from typing import TYPE_CHECKING

from py4j.protocol import Py4JNetworkError
from pyspark.errors import PythonException
from pyspark.logger import PySparkLogger
from pyspark.sql import functions as F

from riverlock.core.errors import (
    EpochAbortedError,
    InternalError,
    RiverlockError,
    SourceError,
    UserCodeError,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.errors import PySparkException
    from pyspark.sql import Column

__all__ = [
    "RemoteError",
    "bad_row_error",
    "explained",
    "find_remote",
    "last_line",
    "unlogged",
]

# PySpark logs an error of analysis, Java frames and all, before anyone can catch it.
_TALKATIVE = ("DataFrameQueryContextLogger", "SQLQueryContextLogger")

_MARK = re.compile(r"riverlock-error\[([A-Za-z0-9+/=]+)\]")
_BAD_ROW = re.compile(r"riverlock-bad-row\[([^,\]]*),([^,\]]*),([^,\]]*)\]")
_SHOWN_CHARACTERS = 200
# Spark names its errors: [FAILED_READ_FILE.NO_HINT] Encountered error while ...
_CONDITION = re.compile(r"\[[A-Z][A-Z0-9_.]{5,}\][^\n]{0,300}")
_FRAME = re.compile(r"^  (File \"[^\n]+)", re.MULTILINE)
# Not just "riverlock": users may keep their own code in a folder of that name.
_OURS = re.compile(
    r"riverlock[/\\\\](change|cli|columnar|connectors|coordinator|core|driver|engines|flow"
    r"|operators|program|query|replay|snapshot|spark|stages|state|storage"
    r"|testing|worker)[/\\\\]"
)
_MAY_PASS = re.compile(
    r"OSError|StorageError|ConnectionError|TimeoutError|MemoryError|EOFError"
    r"|BrokenPipeError|InjectedFault|StateCorruptedError"
)
_PYTHON_ERROR = re.compile(r"^(\w[\w.]*(?:Error|Exception|Fault)[^\n]*)", re.MULTILINE)


@contextmanager
def unlogged() -> Iterator[None]:
    """Keep PySpark from logging errors that we report ourselves."""
    loggers = [PySparkLogger.getLogger(name) for name in _TALKATIVE]
    before = [logger.disabled for logger in loggers]
    for logger in loggers:
        logger.disabled = True
    try:
        yield
    finally:
        for logger, was_disabled in zip(loggers, before, strict=True):
            logger.disabled = was_disabled


class RemoteError(Exception):
    """Carries one of our errors, pickled, through Spark's text."""

    def __init__(self, error: RiverlockError) -> None:
        """Put the error into the message: Spark keeps nothing else."""
        packed = base64.b64encode(pickle.dumps(error)).decode()
        super().__init__(f"riverlock-error[{packed}]")


def bad_row_error(source: str, place: Column, record: Column) -> Column:
    """Return an expression that raises in a task: a row cannot be parsed."""
    shown = F.substring(record, 1, _SHOWN_CHARACTERS)
    parts = (F.lit(source), place, shown)
    packed = [F.translate(F.base64(p.cast("binary")), "\r\n", "") for p in parts]
    text = F.concat_ws(",", *packed)
    return F.raise_error(F.concat(F.lit("riverlock-bad-row["), text, F.lit("]")))


def _find_bad_row(error: Exception) -> SourceError | None:
    match = _BAD_ROW.search(str(error))
    if match is None:
        return None
    source, place, record = (base64.b64decode(p).decode() for p in match.groups())
    return SourceError(
        source,
        what=f"a row of {place} cannot be parsed: {record}",
        hint="nothing of this epoch was written; fix it there, or let"
        " bad_rows='report' keep such rows out of the stream and offer them as .bad",
    )


def find_remote(error: PySparkException | Exception) -> RiverlockError | None:
    """Return our own error behind one of Spark's, if there is one."""
    match = _MARK.search(str(error))
    if match is None:
        return None
    found = pickle.loads(base64.b64decode(match[1]))  # noqa: S301 - from our workers
    return found if isinstance(found, RiverlockError) else None


def explained(error: Exception, *, stage: str, epoch: int) -> RiverlockError:
    """Return our error for what Spark raised.

    Code that raises does so again: only trouble of machines, disks and networks is
    worth another attempt at the epoch.
    """
    found = find_remote(error) or _find_bad_row(error)
    if found is not None:
        return found
    line = last_line(error)
    if isinstance(error, ConnectionError | Py4JNetworkError):
        gone = "Spark's JVM does not answer, and may have been killed"
        return EpochAbortedError(epoch=epoch, reason=gone, cause=line)
    if isinstance(error, PythonException) and not _MAY_PASS.search(line):
        text = str(error)
        frames = _FRAME.findall(text)
        if frames and _OURS.search(frames[-1]):
            return InternalError(f"a task of stage {stage!r} raised {line}")
        return UserCodeError(
            operator=stage,
            where="a Python function that Spark ran",
            cause=line,
            epoch=epoch,
            line=frames[-1] if frames else "",
            trace=text,
        )
    return EpochAbortedError(epoch=epoch, reason="a task failed", cause=line)


def last_line(error: Exception) -> str:
    """Return the one line of Spark's text that says what went wrong."""
    text = str(error)
    python = _PYTHON_ERROR.findall(text)
    if python:
        return str(python[-1])
    conditions = dict.fromkeys(_CONDITION.findall(text))
    if conditions:
        return "; ".join(list(conditions)[:3])
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[0][:500] if lines else type(error).__name__
