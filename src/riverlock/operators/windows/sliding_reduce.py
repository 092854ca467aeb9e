"""``reduce`` over sliding windows with an inverse: the next window from the last.

Without one, a window is the fold of all its panes. With one, what the next window has
in common with the last is the last one without the panes that leave, and only panes
that enter are folded in.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from riverlock.core.times import micros
from riverlock.operators.windows.window_functions import WindowReduce
from riverlock.state.spec import Value

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from riverlock.core.types import Schema
    from riverlock.operators.base import BuiltIn
    from riverlock.operators.keyed.context import OperatorContext
    from riverlock.operators.windows.window_functions import Span
    from riverlock.program.windows import TimeWindows
    from riverlock.state.spec import StateSpec

__all__ = ["SlidingReduce"]


class SlidingReduce(WindowReduce):
    """Folds panes, and takes those that leave out of the fold again."""

    common: Any  # what the last window has in common with the one after it
    last: Any  # when it ended

    def __init__(
        self,
        function: Callable[[Any, Any], Any],
        inverse: Callable[[Any, Any], Any],
        window: TimeWindows,
        lateness_us: int,
    ) -> None:
        """Keep the functions."""
        super().__init__(function, window, lateness_us)
        self._inverse = inverse

    def _bound(
        self,
        keys: Schema,
        columns: Schema,
        output: Schema,
        states: dict[str, StateSpec],
    ) -> BuiltIn:
        added = {"common": Value(self._fold.type), "last": Value("bigint")}
        return super()._bound(keys, columns, output, {**states, **added})

    def _absorb(self, pane: int, records: list[Any], ctx: OperatorContext) -> None:
        super()._absorb(pane, records, ctx)
        self._touch(pane)

    def _forget(self, pane: int) -> None:
        super()._forget(pane)
        self._touch(pane)

    def _touch(self, pane: int) -> None:
        """Forget a fold that contains a pane which has changed, or is gone."""
        if self.last is not None and self._next_begin(self.last) < pane <= self.last:
            self.common = self.last = None

    def _next_begin(self, end: int) -> int:
        """Return the start of the window after the one that ends then."""
        return end + self.window.slide_us - self.window.size_us

    def _rows(
        self, span: Span, panes: list[int], ctx: OperatorContext
    ) -> Iterable[Any]:
        end = micros(span.end)
        if self.last is not None and self.last + self.window.slide_us == end:
            entering = [p for p in panes if p > self.last]
            parts = [self._restored(self.common), *self._folds(entering)]
        else:
            parts = self._folds(panes)
        whole = self._fold.merged(parts, ctx)
        self.common = self._in_common(whole, end, panes, ctx)
        self.last = None if self.common is None else end
        return [(*whole, *span)]

    def _rows_so_far(
        self, span: Span, panes: list[int], ctx: OperatorContext
    ) -> Iterable[Any]:
        # No other window begins with one that is not over.
        return super()._rows(span, panes, ctx)

    def _folds(self, panes: list[int]) -> list[Any]:
        return [self._restored(self.folded[p]) for p in panes]

    def _in_common(
        self, whole: Any, end: int, panes: list[int], ctx: OperatorContext
    ) -> Any:
        """Return what the next window can start with; None: with its panes."""
        begin = self._next_begin(end)
        leaving = [p for p in panes if p <= begin]
        # Folding what stays is no more work than taking out as much; and where a
        # record was left out as a dead letter, it must not be taken out.
        if 2 * len(leaving) >= len(panes) or ctx.buries:
            return None
        for fold in self._folds(leaving):
            whole = self._restored(self._fold.row(self._inverse(whole, fold)))
        return tuple(whole)
