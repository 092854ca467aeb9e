from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import pytest

import riverlock as rl
from riverlock.core.errors import InvalidFlowError
from riverlock.flow.inside import node_of
from riverlock.program.graph import Relational, RowWise

if TYPE_CHECKING:
    from pyspark.sql import Column


class _Column:
    """Calls like a Column, which is no function all the same."""

    __module__ = "pyspark.sql.classic.column"

    def __call__(self, *given: object) -> object:
        raise AssertionError(given)


A_COLUMN = cast("Column", _Column())


def _stream() -> rl.Stream:
    source = rl.sources.files("in", format="json", schema="k string, v long")
    return rl.Flow("shop").read(source)


@pytest.mark.parametrize("condition", ["v > 1", A_COLUMN])
def test_filter_by_sql_or_a_column_is_where(condition: Any) -> None:
    kept = _stream().filter(condition)

    kept.key_by("k")
    with pytest.raises(InvalidFlowError, match="k, v"):
        kept.key_by("other")
    node = node_of(kept)
    assert isinstance(node, Relational)
    assert (node.operation, node.arguments) == ("where", (condition,))


def test_filter_by_a_function_handles_records() -> None:
    kept = _stream().filter(lambda r: r.v > 1)

    assert isinstance(node_of(kept), RowWise)


@pytest.mark.parametrize("more", [{"uid": "big"}, {"on_error": rl.sinks.memory()}])
@pytest.mark.parametrize("condition", ["v > 1", A_COLUMN])
def test_what_only_a_function_needs_is_refused(condition: Any, more: Any) -> None:
    with pytest.raises(InvalidFlowError, match="uid= and on_error="):
        _stream().filter(condition, **more)


def test_what_is_no_condition_is_refused() -> None:
    with pytest.raises(InvalidFlowError, match="function of one record, SQL text or"):
        _stream().filter(cast("Any", 5))
