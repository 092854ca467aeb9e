"""Calls of aggregate functions in a query, and the names that go with them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from riverlock.engines.jobs.sql.refusals import refused
from riverlock.spark.plan_trees import below, kind, names, normal, sequence

if TYPE_CHECKING:
    from collections.abc import Iterable

    from riverlock.spark.plan_trees import Trees

__all__ = ["Calls"]

_PLAIN = re.compile(r"[A-Za-z]\w*")


class Calls:
    """The aggregates of one GROUP BY: SQL over columns that hold their arguments."""

    def __init__(self, trees: Trees, reserved: Iterable[str]) -> None:
        """Take the names that columns must not have."""
        self._trees = trees
        self._taken = {name.casefold() for name in reserved}
        self._names: dict[str, str] = {}
        self._columns: dict[str, str] = {}
        self.aggregates: dict[str, str] = {}
        self.arguments: dict[str, Any] = {}

    def take_name(self, wanted: str | None, kind_of: str) -> str:
        """Return a name that is free, as wanted if possible.

        An average named ``x`` keeps ``x_sum`` in state: no other may begin so.
        """
        name, number = wanted, 0
        while name is None or not self._is_free(name):
            number += 1
            name = f"{kind_of}_{number}"
        self._taken.add(name.casefold())
        return name

    def _is_free(self, name: str) -> bool:
        new = name.casefold()
        return _PLAIN.fullmatch(name) is not None and not any(
            new == old or new.startswith(f"{old}_") or old.startswith(f"{new}_")
            for old in self._taken
        )

    def add(self, call: Any, wanted: str | None) -> str:
        """Return the column that holds the result of a call."""
        call = self._trees.as_call(call)
        if call.filter().isDefined():
            text = f"{normal(call)} {normal(call.filter().get())}"
        else:
            text = normal(call)
        if text not in self._names:
            sql = self._sql(call)
            name = self.take_name(wanted, "agg")
            self._names[text] = name
            self.aggregates[name] = sql
        return self._names[text]

    def _sql(self, call: Any) -> str:
        function = names(call)[-1].casefold()
        arguments = sequence(call.arguments())
        _check_call(call)
        # The others would need what all rows of a group have been.
        is_counted = function == "count" and len(arguments) == 1
        if call.isDistinct() and not is_counted:
            raise refused("distinct")
        for argument in arguments:
            if any(self._trees.is_aggregate(each) for each in below(argument)):
                raise refused("nested")
        # count(*) is count(1), and so is count().
        shown = [self._shown(a) for a in arguments or [self._trees.expression("1")]]
        text = f"{function}({'DISTINCT ' * call.isDistinct()}{', '.join(shown)})"
        if call.filter().isDefined():
            text += f" FILTER (WHERE {self._shown(call.filter().get())})"
        return text + " IGNORE NULLS" * _ignores_nulls(call)

    def _shown(self, argument: Any) -> str:
        """Return an argument as SQL: the name of a column, or a constant."""
        if not any(kind(e) == "UnresolvedAttribute" for e in below(argument)):
            return str(argument.sql())
        text = normal(argument)
        if text not in self._columns:
            name = self.take_name(None, "arg")
            self._columns[text] = name
            self.arguments[name] = argument
        return f"`{self._columns[text]}`"


def _ignores_nulls(call: Any) -> bool:
    return bool(call.ignoreNulls().isDefined() and call.ignoreNulls().get())


def _check_call(call: Any) -> None:
    is_count = names(call)[-1].casefold() == "count"
    if call.isDistinct() and not (is_count and call.arguments().size() == 1):
        raise refused("distinct")
    if call.orderingWithinGroup().size():
        raise refused("within")
