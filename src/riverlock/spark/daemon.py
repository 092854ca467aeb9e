"""The process that forks Spark's Python workers, in sessions that riverlock starts.

It is PySpark's daemon with one difference: a worker whose session is gone ends
silently. PySpark's own tries to report that to the closed socket, fails, and prints a
traceback on the user's terminal, now and then, when a program ends.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, ParamSpec

from pyspark import daemon

if TYPE_CHECKING:
    from collections.abc import Callable

_GONE: Final = 1

_P = ParamSpec("_P")


def _quiet(work: Callable[_P, int]) -> Callable[_P, int]:
    def worker(*args: _P.args, **kwargs: _P.kwargs) -> int:
        try:
            return work(*args, **kwargs)
        except (BrokenPipeError, ConnectionResetError):
            return _GONE

    return worker


if __name__ == "__main__":
    daemon.worker = _quiet(daemon.worker)
    daemon.manager()
