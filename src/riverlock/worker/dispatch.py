"""Runs an operator over the input of a task, in the fastest way that fits it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import pyarrow as pa

from riverlock.coordinator.watermarks import first_open_us
from riverlock.core.hidden_columns import GAP, TIME
from riverlock.core.times import END_US
from riverlock.operators.aggregates.collected import folded
from riverlock.operators.aggregates.folding import Folding, fold
from riverlock.operators.aggregates.partial import kept_columns
from riverlock.operators.boundary import aggregator_errors
from riverlock.operators.built_in import LATE, Aggregate, BuiltIn
from riverlock.operators.far_times import DeadLetter, without_far_keys
from riverlock.operators.keyed.execution import Execution
from riverlock.operators.sessions.session_run import SessionRun, merge_sessions
from riverlock.operators.sessions.session_windows import Sessions
from riverlock.operators.task_input import keyed_input
from riverlock.operators.windows.triggered_windows import Triggered
from riverlock.operators.windows.window_aggregate import WindowAggregate
from riverlock.operators.windows.window_contents import Aggregates
from riverlock.operators.windows.window_functions import WindowFunction
from riverlock.operators.windows.window_run import WindowRun, late_panes, pane_ends
from riverlock.program.windows import GlobalWindow, SessionWindows

if TYPE_CHECKING:
    from collections.abc import Callable

    from riverlock.operators.shipped import EpochInfo, OperatorProgram
    from riverlock.operators.task_input import KeyedInput
    from riverlock.state.layout import StateLayout
    from riverlock.state.store import StateReader

__all__ = ["Done", "late_rows_of", "run_operator"]

# Operators over windows that records may be too late for.
_Timed: TypeAlias = Sessions | WindowFunction | Triggered
# What an operator leaves behind: changes, outputs, timers, dead letters.
Done: TypeAlias = Execution | Folding | SessionRun | WindowRun


def run_operator(  # noqa: PLR0913 - what an operator runs on
    program: OperatorProgram,
    layout: StateLayout,
    reader: StateReader,
    info: EpochInfo,
    table: pa.Table | None,
    *,
    is_first: bool,
    on_prepared: Callable[[], None] = lambda: None,
) -> Done:
    """Run an operator.

    Args:
        program: The operator.
        layout: How its state is stored.
        reader: The state at the start of the epoch.
        info: What is the same for all tasks.
        table: The input of the task; None: only time has passed.
        is_first: Whether this task records broadcast state for all.
        on_prepared: Called when the input is in order, before anything is done with it.

    Raises:
        RiverlockError: See ``Execution.run``.
    """
    if isinstance(program.process, WindowAggregate):
        on_prepared()
        with aggregator_errors(program.uid, info.epoch):
            return WindowRun(program, layout, reader, info, table)
    late_rows = 0
    if isinstance(program.process, _Timed) and table:
        table, late_rows = _on_time(table, program.process, program.late_at(info))
    dead: list[DeadLetter] = []
    if table:
        table, dead = without_far_keys(table, program, info)
    data = _prepared(table, program, info) if table else None
    if data and data.ids:
        data.payloads = reader.get_many(data.ids)
    on_prepared()
    done = None if data is None else fold(program, layout, data)
    if done is not None:
        return done
    sessions = merge_sessions(program, layout, reader, info, data)
    if sessions is not None:
        sessions.late_rows = late_rows
        return sessions
    execution = Execution(program, layout, reader, info, is_first=is_first)
    execution.dead.extend(dead)
    execution.run(data)
    if isinstance(program.process, BuiltIn) and LATE in program.process.sides:
        late_rows = len(execution.emitted[LATE])
    execution.late_rows = late_rows
    return execution


def _prepared(table: pa.Table, program: OperatorProgram, info: EpochInfo) -> KeyedInput:
    """Return the input by key; values that Spark collected are folded."""
    # Aggregates are what an operator does, or what becomes of records it gathers.
    work = getattr(program.process, "content", program.process)
    if isinstance(work, Aggregate | Aggregates):
        aggregates = work.aggregates
        with aggregator_errors(program.uid, info.epoch):
            table = folded(table, aggregates, program.keys.names, program.uid)
        program = replace(program, input=kept_columns(program.input, aggregates))
    return keyed_input(table, program)


def _on_time(
    table: pa.Table, process: _Timed, limit: int | None
) -> tuple[pa.Table, int]:
    """Leave out records that have no time or are too late; returns how many."""
    is_late, is_used = late_rows_of(table, process, limit)
    return table.filter(pa.array(is_used & ~is_late)), int(is_late.sum())


def late_rows_of(
    table: pa.Table, process: _Timed, limit: int | None
) -> tuple[np.ndarray, np.ndarray]:
    """Return which records are too late for a window, and which are in any.

    Args:
        table: The records; those without event time are too late.
        process: The windows.
        limit: The watermark by which records are late.
    """
    window = process.window
    if isinstance(window, GlobalWindow):
        return np.zeros(table.num_rows, bool), np.ones(table.num_rows, bool)
    known = table[TIME].is_valid().to_numpy()
    times = table[TIME].fill_null(0).to_numpy()
    is_open = first_open_us(limit)
    closed_at = None if is_open is None else is_open - process.lateness_us
    if isinstance(window, SessionWindows):
        gaps = _gaps(table, window)
        is_late, is_used = ~known | (gaps <= 0), known
        if closed_at is not None:
            is_late |= times + gaps <= closed_at
    else:
        panes = pane_ends(window, times)
        is_late, is_used = late_panes(window, panes, known, closed_at)
    return is_late, is_used


def _gaps(table: pa.Table, window: SessionWindows) -> np.ndarray:
    """Return the gap after each record; 0 where it has none."""
    if window.gap_us is not None:
        return np.full(table.num_rows, window.gap_us)
    found: np.ndarray = np.minimum(table[GAP].fill_null(0).to_numpy(), END_US)
    return found
