"""Settings of a session that runs apply, each for as long as it lasts.

Several flows may run on one session. The first one to come notes what the user had set,
and the last one to go puts it back: if each did so, the first to end would take the
settings away from the others, and the last would leave its own for ever.
"""

from __future__ import annotations

import contextlib
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING

from py4j.protocol import Py4JError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pyspark.sql import SparkSession

__all__ = ["applied"]


@dataclass
class _Applied:
    """A setting that some runs need.

    Attributes:
        before: What the user had set; None: nothing.
        users: How many runs need it.
    """

    before: str | None
    users: int = 0


_lock = threading.Lock()
# By session and name; empty while nothing runs.
_known: dict[tuple[str, str], _Applied] = {}


@contextlib.contextmanager
def applied(spark: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    """Apply settings, and put back what was before when nobody needs them any more."""
    # Different objects may stand for one session.
    session = f"{spark.sparkContext.applicationId} {spark._jsparkSession.hashCode()}"
    with _lock:
        for name, value in settings.items():
            if (session, name) not in _known:
                _known[session, name] = _Applied(spark.conf.get(name, None))
            _known[session, name].users += 1
            spark.conf.set(name, value)
    try:
        yield
    finally:
        with _lock:
            for name in settings:
                # With the JVM gone there is nothing to put back, and the error
                # that says so must not be replaced.
                with contextlib.suppress(Py4JError, ConnectionError):
                    _leave(spark, session, name)


def _leave(spark: SparkSession, session: str, name: str) -> None:
    mine = _known[session, name]
    mine.users -= 1
    if mine.users:
        return
    del _known[session, name]
    if mine.before is None:
        spark.conf.unset(name)
    else:
        spark.conf.set(name, mine.before)
