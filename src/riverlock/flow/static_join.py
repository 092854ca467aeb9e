"""What a stream can do with a table: ``join_static``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from riverlock.core.errors import InvalidFlowError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from riverlock.core.types import Schema
    from riverlock.flow.stream import Stream
    from riverlock.program.graph import Node, Relational

__all__ = ["StaticJoinable"]


class StaticJoinable:
    """The part of ``Stream`` that takes a table."""

    def _check_column(self, what: str, name: str) -> None:
        raise NotImplementedError

    def _next(self, node: Node, schema: Schema | None) -> Stream:
        raise NotImplementedError

    def _relational(self, operation: str, *arguments: Any) -> Relational:
        raise NotImplementedError

    def join_static(
        self, table: Any, *, on: str | Sequence[str], how: str = "inner"
    ) -> Stream:
        """Add the columns of a table to each row: reference data, read in each epoch.

        The table is broadcast, so it must fit into the memory of a worker.

        Args:
            table: A DataFrame; or a function that returns one for a SparkSession. It is
                called in every epoch, so that the next epoch sees a changed table.
            on: The column, or several, that both sides have.
            how: ``inner``, or ``left`` to keep rows without a match.
        """
        columns = (on,) if isinstance(on, str) else tuple(on)
        if not columns:
            raise InvalidFlowError(
                "join_static(on=)", expected="names of columns", found=repr(on)
            )
        for column in columns:
            self._check_column("join_static", column)
        if how not in ("inner", "left"):
            raise InvalidFlowError(
                "join_static(how=)", expected="inner or left", found=repr(how)
            )
        return self._next(self._relational("join_static", table, columns, how), None)
