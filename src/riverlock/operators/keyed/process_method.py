"""``process`` of keyed streams: logic that users write as a class."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from riverlock.connectors.base.sink import check_dead_letter_sink
from riverlock.core.errors import InvalidFlowError
from riverlock.core.suggestions import did_you_mean
from riverlock.operators.keyed_method import KeyedMethod
from riverlock.program.graph import Connect
from riverlock.program.process import Process, check_process, overrides
from riverlock.program.signatures import refuse_yield
from riverlock.program.two_inputs import check_same_keys, refuse_two_inputs

if TYPE_CHECKING:
    from riverlock.connectors.base.sink import Sink
    from riverlock.flow.stream import Stream

__all__ = ["ProcessMethod"]


class ProcessMethod(KeyedMethod):
    """``process`` of keyed streams."""

    def process(  # noqa: PLR0913 - keywords, each with a default
        self,
        process: Process,
        *,
        uid: str | None = None,
        control: Stream | None = None,
        broadcast: Stream | None = None,
        initial: Any = None,
        on_error: Sink | None = None,
    ) -> Stream:
        """Run a ``Process`` over each key.

        Args:
            process: An instance of your class.
            uid: Stable name of its state; keep it when the code changes.
            control: A stream with the same key columns, for ``on_control``, which may
                change state and set timers, and emits nothing. What it brings in an
                epoch is handled before the records of that epoch.
            broadcast: A stream that every task sees whole, through ``on_broadcast``.
            initial: A DataFrame (or a function that returns one for a SparkSession, or
                columns and rows: ``("k string, n long", [...])``) with the key columns,
                passed row by row to ``on_initial`` in the first epoch.
            on_error: A sink for records that make the process raise.
        """
        taken = self._program.take_uid(uid, "process")
        output = check_process(process, taken)
        refuse_two_inputs(process, taken)
        refuse_yield(process, taken, "on_control")
        check_dead_letter_sink("process(on_error=)", on_error)
        if broadcast is not None:
            self._same_flow(broadcast, "broadcast")
        work: dict[str, Any] = {}
        if control is not None:
            if broadcast is not None or initial is not None:
                raise InvalidFlowError(
                    f"process of operator {taken!r}",
                    expected="control= without broadcast= and initial=",
                    found="both",
                    hint="what they bring may be sent to on_control as well",
                )
            work = {"input": self._controlled(process, control), "has_control": True}
        return self._add(
            taken,
            process,
            output=output,
            broadcast=None if broadcast is None else broadcast._node,
            initial=initial,
            on_error=on_error or self._program.on_error,
            **work,
        )

    def _controlled(self, process: Process, control: Stream) -> Connect:
        """Return both inputs, keyed by the same columns."""
        if not overrides(process, "on_control"):
            raise InvalidFlowError(
                "process(control=)",
                expected="a method on_control",
                found=type(process).__name__,
            )
        self._same_flow(control, "process(control=)")
        if getattr(control, "_keys", None) is not None:
            raise InvalidFlowError(
                "process(control=)",
                expected="a stream, which is keyed as this one is",
                found="a keyed stream",
                hint="leave out its key_by",
            )
        known = control._schema
        for key in self._keys:
            if known is not None and key not in known.names:
                raise InvalidFlowError(
                    "process(control=)",
                    expected=f"the key column {key!r} in the control stream too",
                    found=known.ddl,
                    hint=did_you_mean(key, known.names),
                )
        node = Connect(
            left=self._node,
            right=control._node,
            left_keys=self._keys,
            right_keys=self._keys,
        )
        if self._columns and known:
            check_same_keys(node, self._columns, known)
        return node
