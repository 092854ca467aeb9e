"""The process that forks Spark's Python workers, in sessions that riverlock starts.

It is PySpark's daemon with two differences. It imports what every task needs before it
forks: workers would each spend more than a second of a core on that. And a worker whose
session is gone ends silently: PySpark's own tries to report that to the closed socket,
fails, and prints a traceback on the user's terminal, now and then, when a program ends.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, ParamSpec

# For workers. None of these starts a thread, which workers would lack, but Arrow's
# allocator, which knows how to be forked. Arrow asks for pandas with its first list.
import pandas  # noqa: F401
import pyarrow.dataset  # noqa: F401
import pyspark.sql.conversion
import pyspark.worker  # noqa: F401
from pyspark import daemon

import riverlock.coordinator.votes
import riverlock.snapshot.retention.compaction
import riverlock.spark.session
import riverlock.state.columns.column_log
import riverlock.state.copy.working_copy
import riverlock.state.handles.binding  # noqa: F401

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
