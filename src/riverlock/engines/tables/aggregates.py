"""Aggregates without Spark: those that are Python classes (``rl.Aggregator``).

What Spark combines before the exchange is merged by tasks here, row by row: an
aggregator gives the same whichever way.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from riverlock.core.hidden_columns import ROWS, TIME, WINDOW
from riverlock.core.types import Field, Schema, Type
from riverlock.engines.tables.combining import combined
from riverlock.engines.tables.refusals import needs_spark
from riverlock.engines.tables.rows import ArrowRows
from riverlock.operators.aggregates.aggregator import Aggregator, named_aggregator
from riverlock.operators.aggregates.partial import Merge, PartialAggregate
from riverlock.program.windows import TimeWindows

if TYPE_CHECKING:
    from collections.abc import Mapping

    from riverlock.columnar import Steps
    from riverlock.operators.aggregates.aggregator import NamedAggregator
    from riverlock.program.graph import Keyed

__all__ = ["Combine", "Partials", "plan_aggregates"]


@dataclass(frozen=True)
class Combine:
    """Makes partial rows of records, one each."""

    keys: Schema
    aggregates: dict[str, NamedAggregator]
    window: TimeWindows | None

    @property
    def columns(self) -> Schema:
        """The columns of partial rows that are not hidden."""
        parts = [
            Field(name, Type("array", element=each.collects))
            for name, each in self.aggregates.items()
        ]
        return Schema((*self.keys.fields, *parts))

    def apply(self, rows: ArrowRows, now_us: int) -> ArrowRows:
        """Return the partial rows."""
        columns = {name: rows.table[name] for name in self.keys.names}
        places = pa.array(np.arange(len(rows) + 1, dtype=np.int32))
        for name, each in self.aggregates.items():
            names = [f.name for f in each.collects.fields]
            records = rows.table.select(names).to_struct_array().combine_chunks()
            columns[name] = pa.ListArray.from_arrays(places, records)
        columns |= {name: rows.table[name] for name in rows.hidden}
        made = ArrowRows(self.columns, pa.table(columns))
        return _with_panes(made, self.window)


@dataclass(frozen=True)
class Partials:
    """Makes partial rows of records by expressions.

    Attributes:
        columns: Those of partial rows that are not hidden.
        steps: From records to partial rows, one each.
        window: The windows whose panes they belong to.
        keys: The names of the keys.
        ways: How rows of one key and pane are combined; None: they are not.
    """

    columns: Schema
    steps: Steps
    window: TimeWindows | None
    keys: tuple[str, ...]
    ways: Mapping[str, str] | None

    def apply(self, rows: ArrowRows, now_us: int) -> ArrowRows:
        """Return the partial rows."""
        made = self.steps.apply(rows.table, now_us=now_us)
        found = _with_panes(ArrowRows(self.columns, made), self.window)
        return found if self.ways is None else combined(found, self.keys, self.ways)


def _with_panes(rows: ArrowRows, window: TimeWindows | None) -> ArrowRows:
    """Return partial rows with their panes, each of one record."""
    if window is None:
        return rows
    times = rows.table[TIME]
    ends = window.pane_of(times.fill_null(0).to_numpy())
    panes = pa.array(ends, pa.int64(), mask=times.is_null().to_numpy())
    return rows.with_column(WINDOW, panes).constant(ROWS, 1, pa.int64())


def plan_aggregates(
    rows: ArrowRows, node: Keyed
) -> tuple[Combine, dict[str, PartialAggregate]]:
    """Return how records become partial rows, and how these are merged.

    Raises:
        InvalidFlowError: An aggregate is a Spark expression.
    """
    named: dict[str, NamedAggregator] = {}
    for name, each in node.aggregates.items():
        if not isinstance(each, Aggregator):
            raise needs_spark(
                f"aggregate {name!r} of operator {node.uid!r}",
                f"{each}, a Spark expression",
            )
        named[name] = named_aggregator(name, each, rows.columns)
    found = {
        name: PartialAggregate(
            type=each.output,
            merges=(Merge(columns={name: each.kept}, how=each),),
            result=each,
        )
        for name, each in named.items()
    }
    windows = node.windows
    has_panes = windows is not None and windows.has_panes
    window = windows.window if windows is not None and has_panes else None
    assert window is None or isinstance(window, TimeWindows)
    return Combine(rows.columns.select(node.keys), named, window), found
