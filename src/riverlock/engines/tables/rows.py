"""Rows as tables: what users see of them, and the hidden columns beside it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from riverlock.connectors.base.splits import PartedSplit
from riverlock.core.hidden_columns import HIDDEN, SEQ, TIME
from riverlock.core.types import Schema

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from riverlock.columnar import Steps
    from riverlock.connectors.base.splits import Split
    from riverlock.program.graph import Node

__all__ = ["ArrowRows", "Computed", "Given", "Piece", "Stored"]


@dataclass(frozen=True)
class ArrowRows:
    """The rows of a node: columns that users see, then hidden ones."""

    columns: Schema
    table: pa.Table

    @property
    def hidden(self) -> tuple[str, ...]:
        """The names of the hidden columns."""
        return tuple(c for c in self.table.column_names if c in HIDDEN)

    @property
    def visible(self) -> pa.Table:
        """The columns that users see."""
        return self.table.select(list(self.columns.names))

    @property
    def structs(self) -> pa.ChunkedArray:
        """The same as one column."""
        return self.visible.to_struct_array()

    def with_column(self, name: str, values: Any) -> ArrowRows:
        """Return the same rows with a hidden column set."""
        table = self.table
        if name in table.column_names:
            place = table.column_names.index(name)
            return replace(self, table=table.set_column(place, name, values))
        return replace(self, table=table.append_column(name, values))

    def constant(self, name: str, value: Any, kind: pa.DataType) -> ArrowRows:
        """Return the same rows with a hidden column that is the same for all."""
        return self.with_column(name, pa.repeat(pa.scalar(value, kind), len(self)))

    def __len__(self) -> int:
        """Return how many there are."""
        return int(self.table.num_rows)


@dataclass(frozen=True, slots=True)
class Piece:
    """A piece of a range, and the position of its first row."""

    first: int
    split: Split


class Given:
    """What is read of a source here; each piece is read once."""

    def __init__(
        self, columns: Schema, bad: Schema | None = None, pieces: Sequence[Piece] = ()
    ) -> None:
        """Take the columns of its rows, those of bad ones, and what is to be read."""
        self.columns, self._bad, self._pieces = columns, bad, pieces
        self._read: tuple[ArrowRows, ArrowRows] | None = None

    def rows(self) -> ArrowRows:
        """Return the rows of the stream."""
        return self._both()[0]

    def bad_rows(self) -> ArrowRows:
        """Return the rows that could not be parsed."""
        return self._both()[1]

    def _both(self) -> tuple[ArrowRows, ArrowRows]:
        if self._read is None:
            bad = self._bad or Schema(())
            good_ones, bad_ones = [], [_numbered(bad.to_arrow().empty_table(), 0)]
            for piece in self._pieces:
                if isinstance(piece.split, PartedSplit):
                    good, wrong = piece.split.parted()
                    bad_ones.append(_numbered(wrong, piece.first))
                else:
                    good = piece.split.table()
                good_ones.append(_numbered(good, piece.first))
            # A channel has a hidden column, too: its files say so, if there are any.
            empty = _numbered(self.columns.to_arrow().empty_table(), 0)
            self._read = (
                ArrowRows(self.columns, pa.concat_tables(good_ones or [empty])),
                ArrowRows(bad, pa.concat_tables(bad_ones)),
            )
        return self._read


def _numbered(table: pa.Table, first: int) -> pa.Table:
    """Add positions: rows say where in their piece they are, or follow each other."""
    places = np.arange(table.num_rows, dtype=np.int64)
    if SEQ in table.column_names:
        places = table[SEQ].to_numpy()
        table = table.drop_columns([SEQ])
    return table.append_column(SEQ, pa.array(places + first))


@dataclass(frozen=True)
class Stored:
    """Rows that a stage has made: all their columns, and where they are."""

    columns: Schema
    arrow: pa.Schema
    paths: Sequence[str] = ()
    # Those that are still in this process.
    tables: Sequence[pa.Table] = ()

    @classmethod
    def output(cls, columns: Schema, paths: Sequence[str] = ()) -> Stored:
        """Return the rows of an operator's output, in these files."""
        hidden = [pa.field(SEQ, pa.int64()), pa.field(TIME, pa.int64())]
        return cls(columns, pa.schema([*columns.to_arrow(), *hidden]), paths)


@dataclass(frozen=True)
class Computed:
    """Steps that are expressions of Spark, compiled; none if all are in Python.

    Attributes:
        steps: By node: the node that they begin with, and what leads to its rows.
        gaps: By operator: what adds the gap after each record of its sessions.
    """

    steps: Mapping[Node, tuple[Node, Steps]] = field(default_factory=dict)
    gaps: Mapping[str, Steps] = field(default_factory=dict)
