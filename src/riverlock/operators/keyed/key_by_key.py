"""Operators that handle one key after the other, as a user's ``Process`` does."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from riverlock.operators.base import LATE, BuiltIn
from riverlock.operators.far_times import without_far_keys
from riverlock.operators.keyed.execution import Execution
from riverlock.operators.task_input import KeyedInput, keyed_input

if TYPE_CHECKING:
    from riverlock.operators.base import Work
    from riverlock.operators.effects import DeadLetter, Effects

__all__ = ["KeyByKey", "run_key_by_key"]


def run_key_by_key(work: Work) -> Effects:
    """Run a process over the input of one task and epoch, key by key.

    Raises:
        RiverlockError: See ``Execution.run``.
    """
    data, dead = _by_key(work)
    work.on_prepared()
    return Execution(work).run(data, dead)


class KeyByKey(BuiltIn):
    """An operator with the methods of a ``Process``, called for each record and timer.

    Where all keys of a task can be handled at once, with the same effects, ``at_once``
    does so.
    """

    is_by_key = True

    def in_time(self, work: Work) -> tuple[Work, int]:
        """Leave out records that come too late; return how many they were."""
        return work, 0

    def prepared(self, work: Work) -> Work:
        """Return the work with the columns that ``on_event`` is to see."""
        return work

    def at_once(self, work: Work, data: KeyedInput | None) -> Effects | None:
        """Handle all keys together, if that is the same; None: key by key, then.

        Args:
            work: What the operator runs on.
            data: The input by key; None: only time has passed.
        """
        return None

    def run(self, work: Work) -> Effects:
        """Handle the input of one task and epoch, at once or key by key."""
        work, late = self.in_time(work)
        work = self.prepared(work)
        data, dead = _by_key(work)
        work.on_prepared()
        # What is at hand as dead letters goes with those that the loop finds.
        effects = None if dead else self.at_once(work, data)
        if effects is None:
            execution = Execution(work)
            effects = execution.run(data, dead)
            if LATE in self.sides:
                late += len(execution.emitted[LATE])
        return replace(effects, late=late) if late else effects


def _by_key(work: Work) -> tuple[KeyedInput | None, list[DeadLetter]]:
    """Return the input grouped by key, with stored rows, and dead letters of keys."""
    table = work.table
    if not table:
        return None, []
    table, dead = without_far_keys(table, work.program, work.info)
    data = keyed_input(table, work.program) if table else None
    if data and data.ids:
        data.payloads = work.reader.get_many(data.ids)
    return data, dead
