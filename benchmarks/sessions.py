"""Sessions of a key's records, against the same logic in transformWithState.

    python -m benchmarks.sessions [--keys 100000] [--rows 400000]

A key has a record every six seconds on average, and a session ends after five seconds
of silence, so that most keys end one and begin another all the time.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from benchmarks import streaming
from benchmarks.common import Epoch, Window, epochs_of
from benchmarks.contest import contest
from benchmarks.keyed_state import KEY
from benchmarks.windows import AT, nothing

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame

GAP, GAP_MS, DELAY = "5 seconds", 5_000, "1 second"


def riverlock(chosen: argparse.Namespace, window: Window) -> list[Epoch]:
    import riverlock as rl

    columns = {"k": KEY.format(n="id", keys=chosen.keys), "at": AT.format(n="id")}
    flow = rl.Flow("bench")
    stream = flow.read(rl.sources.generator(columns, rows=10**12), uid="in")
    keyed = stream.event_time("at", delay=DELAY).key_by("k")
    counts = keyed.window(rl.sessions(GAP)).count(uid="sessions")
    counts.write(rl.sinks.for_each_epoch(nothing), uid="out")
    return epochs_of(flow, window, epoch_target=None, max_rows_per_epoch=chosen.rows)


def _sessions() -> Any:
    from pyspark.sql.streaming.stateful_processor import (
        StatefulProcessor,
        StatefulProcessorHandle,
    )

    class Sessions(StatefulProcessor):
        """The open session of a key; its records come in order of event time."""

        def init(self, handle: StatefulProcessorHandle) -> None:
            self._handle = handle
            self._open = handle.getValueState("open", "begin bigint, end bigint, n int")

        def handleInputRows(  # noqa: N802 - PySpark's spelling
            self,
            key: Any,
            rows: Any,
            timerValues: Any,  # noqa: N803
        ) -> Any:
            from pyspark.sql import Row

            session: Any = self._open.get()
            before = None if session is None else session[1]
            for row in rows:
                at = int(row.at.timestamp() * 1000)
                if session is None or at > session[1]:
                    if session is not None:
                        yield Row(
                            k=key[0], begin=session[0], end=session[1], n=session[2]
                        )
                    session = (at, at + GAP_MS, 1)
                else:
                    session = (session[0], at + GAP_MS, session[2] + 1)
            if before is not None:
                self._handle.deleteTimer(before)
            self._handle.registerTimer(session[1])
            self._open.update(session)

        def handleExpiredTimer(  # noqa: N802
            self,
            key: Any,
            timerValues: Any,  # noqa: N803
            expiredTimerInfo: Any,  # noqa: N803
        ) -> Any:
            from pyspark.sql import Row

            session: Any = self._open.get()
            begin, end, n = session
            self._open.clear()
            yield Row(k=key[0], begin=begin, end=end, n=n)

        def close(self) -> None:
            pass

    return Sessions()


def transform_with_state(chosen: argparse.Namespace, window: Window) -> list[Epoch]:
    columns = [
        f"{KEY.format(n='n', keys=chosen.keys)} as k",
        f"{AT.format(n='n')} as at",
    ]

    def start(records: DataFrame) -> Any:
        keyed = records.withWatermark("at", DELAY).groupBy("k")
        counts = keyed.transformWithState(
            _sessions(),
            "k bigint, begin bigint, end bigint, n int",
            outputMode="Append",
            timeMode="EventTime",
        )
        return streaming.to_nowhere(counts, mode="append")

    return streaming.batches_of(columns, chosen.rows, window, start)


CONTENDERS: dict[str, Callable[[argparse.Namespace, Window], list[Epoch]]] = {
    "riverlock": riverlock,
    "transformWithState": transform_with_state,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--keys", type=int, default=100_000)
    parser.add_argument("--rows", type=int, default=400_000, help="records per epoch")
    contest("sessions", "sessions, {keys:,} keys", CONTENDERS, parser)


if __name__ == "__main__":
    main()
