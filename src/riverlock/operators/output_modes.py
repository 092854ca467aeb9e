"""Output modes: which rows of an aggregate a sink gets.

A row can only be updated if it replaces another: the one with the same key and window.
Where that is not so, the mode is refused, with the reason. The bounds of a session
change: updates of sessions also say which rows are gone.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from riverlock.connectors.base.sink import KeyedSink
from riverlock.core.errors import InvalidFlowError
from riverlock.operators.base import GONE, UPDATES
from riverlock.operators.row_identity import missing_columns
from riverlock.operators.windows.window_contents import Kept
from riverlock.operators.windows.window_functions import WindowApply
from riverlock.operators.windows.window_top import WindowTop
from riverlock.program.graph import Connect, Keyed, Output, Relational
from riverlock.program.windows import SessionWindows

if TYPE_CHECKING:
    from collections.abc import Iterable

    from riverlock.connectors.base.sink import Sink
    from riverlock.operators.windows.window_operator import Gathering
    from riverlock.program.graph import Node

__all__ = [
    "below_queries",
    "identity_of",
    "in_mode",
    "on_top",
    "takes_back",
    "updated_aggregate",
]

_LEAVE_OUT = "leave the mode out"
# Why rows of a window cannot be updated, and what to write instead.
_DISCARDED = (
    "each firing holds the records since the last one, and would take the place of"
    " those that have the others",
    f"{_LEAVE_OUT}, and add the firings up; or leave accumulate=False out",
)
_JOIN = (
    "a window of a join emits once, when it is over",
    _LEAVE_OUT,
)
_APPLIED = (
    "rows of apply that do not say of which key and window they are: {missing} missing",
    f"add them to the columns of the function, which gives one row of each window; or"
    f" {_LEAVE_OUT}",
)


def below_queries(node: Node) -> tuple[list[Relational], Node]:
    """Return the stages of ``flow.sql`` that a stream ends with, and what is below."""
    stages: list[Relational] = []
    while isinstance(node, Relational) and node.operation == "sql":
        stages.append(node)
        node = node.input
    return stages, node


def on_top(stages: Iterable[Relational], node: Node) -> Node:
    """Return stages, uppermost first, over another node."""
    for stage in reversed(list(stages)):
        node = replace(stage, input=node)
    return node


def in_mode(node: Node, mode: str, sink: Sink) -> Node:
    """Return the rows of an aggregate that a sink gets in mode append or update.

    Raises:
        InvalidFlowError: These rows have no such mode, or not with this sink.
    """
    if mode not in ("append", "update"):
        raise InvalidFlowError(
            "write(mode=)", expected="append, update or complete", found=repr(mode)
        )
    stages, below = below_queries(node)
    keyed = below.input if isinstance(below, Output) else None
    if mode == "append":
        _check_is_final(keyed)
        return node
    found = updated_aggregate(below, mode)
    if found.windows is None:
        return node  # each row is an update
    if not all(stage.arguments[0].is_row_by_row for stage in stages):
        raise InvalidFlowError(
            "mode 'update' of flow.sql",
            expected="a row for each window that changed",
            found="HAVING, WHERE or a join over windows that have not ended",
            hint="a row that no longer fits could not be taken back: write"
            " mode='complete', or leave the mode out",
        )
    if takes_back(found):
        _check_sessions(found, stages, sink)
    return on_top(stages, Output(input=found, name=UPDATES))


def _check_is_final(keyed: object) -> None:
    """Refuse rows that later ones replace."""
    if isinstance(keyed, Keyed) and keyed.windows is not None:
        return
    if not isinstance(keyed, Keyed) or not keyed.aggregates:
        raise _of_one_mode("append")
    raise InvalidFlowError(
        f"mode 'append' of {keyed.uid!r}",
        expected="update or complete",
        found="append, of rows that change with every epoch",
        hint="leave the mode out, which is update here; or aggregate windows, which"
        " emit when they are over",
    )


def _of_one_mode(mode: str) -> InvalidFlowError:
    return InvalidFlowError(
        f"write(mode={mode!r})",
        expected="the output of agg, or of flow.sql with GROUP BY",
        found="a stream that has one mode only",
        hint="leave the mode out; write the output of agg before other steps",
    )


def updated_aggregate(node: Node, mode: str) -> Keyed:
    """Return the aggregate whose rows a node has, if they can be replaced by key.

    Raises:
        InvalidFlowError: They cannot.
    """
    keyed = node.input if isinstance(node, Output) and node.name == "main" else None
    if not isinstance(keyed, Keyed) or not (keyed.aggregates or keyed.windows):
        raise _of_one_mode(mode)
    why = None if keyed.windows is None else _obstacle(keyed, keyed.windows)
    if why is not None:
        found, hint = why
        raise InvalidFlowError(
            f"mode {mode!r} of {keyed.uid!r}",
            expected="rows that later ones can replace",
            found=found,
            hint=hint,
        )
    return keyed


def _obstacle(keyed: Keyed, windows: Gathering) -> tuple[str, str] | None:
    """Return why rows cannot be updated, and what to write; None: they can."""
    if not windows.accumulates:
        return _DISCARDED
    if isinstance(keyed.input, Connect):
        return _JOIN
    return _applied(keyed, windows)


def _applied(keyed: Keyed, windows: Gathering) -> tuple[str, str] | None:
    """Return which columns rows of ``apply`` lack; other rows have them."""
    function = getattr(keyed.process, "content", keyed.process)
    if not isinstance(function, WindowApply | Kept):
        return None
    names = function.columns.names
    missing = missing_columns(keyed.keys, names, windows.bounds)
    found, hint = _APPLIED
    return (found.format(missing=" and ".join(missing)), hint) if missing else None


def identity_of(keyed: Keyed) -> tuple[str, ...]:
    """Return the columns by which rows of an aggregate are replaced."""
    if keyed.windows is None:
        return keyed.keys
    rank = ("rank",) if isinstance(keyed.process, WindowTop) else ()
    return (*keyed.keys, *keyed.windows.bounds, *rank)


def takes_back(keyed: Keyed) -> bool:
    """Whether updates of an aggregate also say which rows are gone."""
    windows = keyed.windows
    return windows is not None and isinstance(windows.window, SessionWindows)


def _check_sessions(keyed: Keyed, stages: list[Relational], sink: Sink) -> None:
    """Refuse updates of sessions by which rows could not be taken back.

    Raises:
        InvalidFlowError: A query leaves out the column that says so, or the sink would
            keep the row of a session that no longer exists.
    """
    about = f"mode 'update' of {keyed.uid!r}"
    if stages:
        raise InvalidFlowError(
            about,
            expected=f"rows with a column {GONE!r}: a session that grows, or merges"
            " with another, has another start or end, and its old row is taken"
            " back",
            found="columns of flow.sql, which do not have it",
            hint="write mode='complete'; or use .key_by(...).window(rl.sessions(...))",
        )
    if isinstance(sink, KeyedSink) and sink.keeps_gone(GONE):
        raise InvalidFlowError(
            about,
            expected="a sink that deletes rows: a session that grows, or merges with"
            " another, has another start or end, and its old row is taken back",
            found=f"{sink.kind!r}, which would keep it",
            hint=f"rl.sinks.sql(..., how='upsert', deletes={GONE!r}) deletes it",
        )
