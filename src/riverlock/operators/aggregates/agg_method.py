"""``agg`` of keyed streams: expressions that Spark splits into partial aggregates."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from riverlock.operators.aggregates.aggregator import named_aggregates
from riverlock.operators.keyed_method import KeyedMethod

if TYPE_CHECKING:
    from collections.abc import Mapping

    from riverlock.flow.stream import Stream

__all__ = ["AggMethod"]


class AggMethod(KeyedMethod):
    """``agg`` of keyed streams."""

    def agg(
        self,
        aggregates: Mapping[str, Any] | None = None,
        *,
        uid: str | None = None,
        **named: Any,
    ) -> Stream:
        """Keep running aggregates: ``agg(n="count(*)", total=F.sum("amount"))``.

        Each epoch emits one row per changed key: the key columns, then the aggregates.
        Spark combines the rows of a key before they are shuffled.
        """
        every = named_aggregates(aggregates, named)
        return self._apply("agg", None, uid, aggregates=every, on_error=None)
