"""``top`` over windows: the best records of each, given once and then forgotten."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from riverlock.core.errors import InvalidFlowError
from riverlock.core.types import Field, Schema, Type
from riverlock.operators.by_key.top import Ranking, ranked
from riverlock.operators.windows.window_columns import BOUNDS
from riverlock.operators.windows.window_functions import Span, WindowFunction
from riverlock.state.spec import Map

if TYPE_CHECKING:
    from collections.abc import Iterable

    from riverlock.operators.base import BuiltIn
    from riverlock.operators.keyed.context import OperatorContext
    from riverlock.program.windows import TimeWindows

__all__ = ["WindowTop"]


class WindowTop(WindowFunction):
    """Keeps the n best records of each pane; those of a window are among them."""

    best: Any

    def __init__(self, ranking: Ranking, window: TimeWindows, lateness_us: int) -> None:
        """Take what is best."""
        super().__init__(window, lateness_us)
        self._ranking = ranking

    def bound(self, keys: Schema, columns: Schema) -> BuiltIn:
        """Declare a ranking per pane."""
        taken = sorted(set(BOUNDS) & set(columns.names))
        if taken:
            raise InvalidFlowError(
                "top() over windows",
                expected=f"no columns {' and '.join(BOUNDS)}, which it adds",
                found=", ".join(taken),
            )
        rows = ranked(columns, self._ranking.by)
        bounds = tuple(Field(n, Type("timestamp")) for n in BOUNDS)
        self._ranking.take(columns)
        kept = Type("array", element=Type("struct", fields=columns.fields))
        output = Schema((*rows.fields, *bounds))
        return self._bound(keys, columns, output, {"best": Map("bigint", kept)})

    def _absorb(self, pane: int, records: list[Any], ctx: OperatorContext) -> None:
        stored = [msgspec.structs.astuple(row) for row in self.best.get(pane, ())]
        self.best[pane] = self._best([*stored, *map(tuple, records)])

    def _best(self, rows: Iterable[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
        found: list[tuple[Any, ...]] = []
        for row in rows:
            found = self._ranking.placed(found, row)
        return found

    def _forget(self, pane: int) -> None:
        self.best.pop(pane, None)

    def _rows(
        self, span: Span, panes: list[int], ctx: OperatorContext
    ) -> Iterable[Any]:
        rows = [msgspec.structs.astuple(r) for pane in panes for r in self.best[pane]]
        return [(*row, n, *span) for n, row in enumerate(self._best(rows), 1)]
