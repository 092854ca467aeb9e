"""``process`` of keyed streams: logic that users write as a class."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from riverlock.connectors.base.sink import check_dead_letter_sink
from riverlock.operators.keyed_method import KeyedMethod
from riverlock.program.process import Process, check_process
from riverlock.program.two_inputs import refuse_two_inputs

if TYPE_CHECKING:
    from riverlock.connectors.base.sink import Sink
    from riverlock.flow.stream import Stream

__all__ = ["ProcessMethod"]


class ProcessMethod(KeyedMethod):
    """``process`` of keyed streams."""

    def process(
        self,
        process: Process,
        *,
        uid: str | None = None,
        broadcast: Stream | None = None,
        initial: Any = None,
        on_error: Sink | None = None,
    ) -> Stream:
        """Run a ``Process`` over each key.

        Args:
            process: An instance of your class.
            uid: Stable name of its state; keep it when the code changes.
            broadcast: A stream that every task sees whole, through ``on_broadcast``.
            initial: A DataFrame (or a function that returns one for a SparkSession, or
                columns and rows: ``("k string, n long", [...])``) with the key columns,
                passed row by row to ``on_initial`` in the first epoch.
            on_error: A sink for records that make the process raise.
        """
        taken = self._program.take_uid(uid, "process")
        output = check_process(process, taken)
        refuse_two_inputs(process, taken)
        check_dead_letter_sink("process(on_error=)", on_error)
        if broadcast is not None:
            self._same_flow(broadcast, "broadcast")
        return self._add(
            taken,
            process,
            output=output,
            broadcast=None if broadcast is None else broadcast._node,
            initial=initial,
            on_error=on_error or self._program.on_error,
        )
