"""GROUP BY over a stream: our keyed aggregates, with Spark's expressions around them.

In front of the operator a stage computes its keys and the arguments of aggregates;
behind it another computes HAVING and the SELECT list of keys, window and results.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from riverlock.core.errors import InvalidFlowError
from riverlock.engines.jobs.sql.calls import Calls
from riverlock.engines.jobs.sql.refusals import refused
from riverlock.engines.jobs.sql.scope import UNNAMED, Rows, Spine
from riverlock.engines.jobs.sql.stage import About
from riverlock.engines.jobs.sql.window_call import (
    check_time,
    gap_of,
    window_kind,
    window_of,
)
from riverlock.operators.windows.window_columns import BOUNDS, LONG_KEY
from riverlock.program.windows import SessionWindows
from riverlock.spark.plan_trees import below, children, kind, names, normal, sequence

if TYPE_CHECKING:
    from collections.abc import Mapping

    from riverlock.engines.jobs.sql.query import Query
    from riverlock.engines.jobs.sql.scope import Scope
    from riverlock.flow.stream import Stream
    from riverlock.program.windows import TimeWindows

__all__ = ["Grouping"]

_OVER = ("WindowExpression", "UnresolvedWindowExpression")
_SETS = ("Cube", "Rollup", "GroupingSets")
_QUOTES = re.compile(r"['`]")


class Grouping:
    """An aggregate of a query, with its HAVING."""

    def __init__(self, query: Query, plan: Any, having: Any, scope: Scope) -> None:
        """Take Spark's node, and the condition that stands above it, if any."""
        self._query, self._trees, self._scope = query, query.trees, scope
        self._plan, self._having = plan, having
        self._items = sequence(plan.aggregateExpressions())
        self._calls = Calls(query.trees, {*BOUNDS, LONG_KEY, "pane_end"})
        # What stands for keys and the window behind the operator, by normal text.
        self._known: dict[str, Any] = {}
        self._keys: dict[str, Any] = {}
        self._aliases: list[str] = []

    def rows(self) -> Rows:
        """Return the rows of the aggregate.

        Raises:
            InvalidFlowError: It has something that a stream cannot have.
        """
        uid = self._query.take_uid()
        self._query.check_subqueries(self._plan, self._scope)
        spine = self._query.spine(self._plan.child(), self._scope)
        if spine.about.is_updating:
            raise refused("updating")
        groups = [self._group(g) for g in self._groups()]
        if not groups:
            raise refused("aggregate" if self._having is None else "UnresolvedHaving")
        windows = [g for g in groups if window_kind(g)]
        if len(windows) > 1:
            raise refused("windows")
        window = windows[0] if windows else None
        if window is not None:
            check_time(window, spine)
            self._known[normal(window)] = _span(self._trees)
        elif self._having is not None:
            raise refused("having")
        for group in groups:
            if window_kind(group) is None:
                self._key(group)
        chosen = self._chosen(window)
        condition = self._condition(chosen, window)
        stream = self._grouped(spine, window, uid)
        about = About(window=self._window_column(window), is_updating=window is None)
        return self._behind(stream, chosen, condition, about)

    def _groups(self) -> list[Any]:
        found = sequence(self._plan.groupingExpressions())
        if len(found) == 1 and normal(found[0]) == "all":
            values = [_value(i) for i in self._items]
            return [v for v in values if not any(map(self._is_call, below(v)))]
        return found

    def _is_call(self, expression: Any) -> bool:
        return self._trees.is_aggregate(expression)

    def _group(self, expression: Any) -> Any:
        """Return what a place or a name in GROUP BY stands for."""
        if kind(expression) in _SETS:
            raise refused(kind(expression))
        if kind(expression) == "UnresolvedOrdinal":
            return self._item(expression.ordinal())
        if kind(expression) != "UnresolvedAttribute":
            return expression
        name = normal(expression)
        for item in self._items:
            is_named = kind(item) == "Alias" and item.name().casefold() == name
            if is_named and name not in _columns(item.child()):
                # Spark prefers columns to names of SELECT: there must be none.
                self._aliases.append(str(item.name()))
                return item.child()
        return expression

    def _item(self, number: int) -> Any:
        if not 1 <= number <= len(self._items):
            raise InvalidFlowError(
                f"GROUP BY {number} of flow.sql",
                expected=f"1 to {len(self._items)}",
                found=str(number),
            )
        return _value(self._items[number - 1])

    def _key(self, expression: Any) -> None:
        """Make a key column of an expression."""
        text = normal(expression)
        if text in self._known:
            return
        wanted = [i.name() for i in self._items if _is_named(i, text)]
        if kind(expression) == "UnresolvedAttribute":
            wanted = [names(expression)[-1]]
        name = self._calls.take_name(wanted[0] if wanted else None, "key")
        self._keys[name] = expression
        self._known[text] = self._trees.attribute(name)

    def _chosen(self, window: Any) -> dict[str, Any]:
        """Return the columns of SELECT, as expressions over what the operator gives."""
        aliases: dict[str, Any] = {}
        chosen: dict[str, Any] = {}
        for item in self._items:
            if kind(item).startswith("UnresolvedStar"):
                raise refused("star")
            value = _value(item)
            name = item.name() if _has_name(item) else _title(value)
            if name in chosen:
                raise InvalidFlowError(
                    "flow.sql()",
                    expected="each column name once",
                    found=f"{name} twice",
                    hint="name them: SELECT count(*) AS n, ...",
                )
            if self._is_call(value):
                self._calls.add(value, name if _has_name(item) else None)
            chosen[name] = self._replaced(value, window, aliases)
            if _has_name(item):
                aliases[name.casefold()] = chosen[name]
        return chosen

    def _condition(self, chosen: Mapping[str, Any], window: Any) -> Any:
        if self._having is None:
            return None
        aliases = {name.casefold(): value for name, value in chosen.items()}
        return self._replaced(self._having, window, aliases)

    def _replaced(
        self, expression: Any, window: Any, aliases: Mapping[str, Any]
    ) -> Any:
        """Return an expression over what the operator gives instead of its input."""
        if kind(expression) in _OVER:
            raise refused(kind(expression))
        text = normal(expression)
        if text in self._known:
            return self._known[text]
        if self._is_call(expression):
            return self._trees.attribute(self._calls.add(expression, None))
        if window_kind(expression):
            raise InvalidFlowError(
                f"{expression.sql()} in SELECT of flow.sql",
                expected="the window of GROUP BY",
                found="another" if window is not None else "none",
            )
        if kind(expression) == "UnresolvedAttribute":
            return self._attribute(expression, window, aliases)
        old = children(expression)
        if not old:
            return expression
        new = [self._replaced(each, window, aliases) for each in old]
        return self._trees.with_children(expression, new)

    def _attribute(
        self, attribute: Any, window: Any, aliases: Mapping[str, Any]
    ) -> Any:
        parts = names(attribute)
        first, *fields = parts
        if first.casefold() == (window_kind(window) if window is not None else None):
            return self._fields(_span(self._trees), fields)
        for name, key in self._keys.items():
            if kind(key) == "UnresolvedAttribute" and _is_same(parts, names(key)):
                return self._trees.attribute(name)
        if first.casefold() in aliases:
            return self._fields(aliases[first.casefold()], fields)
        raise InvalidFlowError(
            f"column {'.'.join(parts)!r} of flow.sql",
            expected="a column of GROUP BY, or an aggregate of it",
            found="a column that may differ among the rows of a group",
        )

    def _fields(self, value: Any, fields: list[str]) -> Any:
        for name in fields:
            value = self._trees.field(value, name)
        return value

    def _grouped(self, spine: Spine, window: Any, uid: str | None) -> Stream:
        columns = {**self._keys, **self._calls.arguments}
        if window is not None:
            # For those who read late records; the operator knows it anyway.
            at = sequence(window.arguments())[0]
            columns[self._calls.take_name(_title(at), "time")] = at
            windows = self._windows(window, columns)
        named = [self._trees.alias(value, name) for name, value in columns.items()]
        front = self._trees.project(named, self._plan.child())
        stream = spine.stream(front, absent=tuple(self._aliases))
        aggregates = self._calls.aggregates or {"rows": "count(1)"}
        if window is None:
            return stream.key_by(*self._keys).agg(aggregates, uid=uid)
        self._query.windows += 1
        keyed = stream.key_by(*self._keys) if self._keys else stream
        lateness = self._query.lateness or "0 seconds"
        windowed = keyed.window(windows, lateness=lateness)
        return windowed.agg(aggregates, uid=uid)

    def _windows(
        self, call: Any, columns: dict[str, Any]
    ) -> TimeWindows | SessionWindows:
        """Return the windows of a call; gaps that differ become a column in front."""
        gap = gap_of(call)
        if gap is None:
            return window_of(self._trees, call)
        name = self._calls.take_name(None, "gap")
        columns[name] = gap
        return SessionWindows(gap_expr=f"`{name}`")

    def _behind(
        self, stream: Stream, chosen: Mapping[str, Any], condition: Any, about: About
    ) -> Rows:
        under = self._plan.child()  # stands for the operator's rows
        nodes = [] if condition is None else [self._trees.where(condition, under)]
        columns = [self._trees.alias(value, name) for name, value in chosen.items()]
        nodes.append(self._trees.project(columns, under))
        spine = Spine(
            steps=(),
            name=UNNAMED,
            rows=Rows(stream=stream, about=about),
            tables=self._scope.tables,
        )
        return Rows(stream=spine.stream(*nodes, about=about), about=about)

    def _window_column(self, window: Any) -> str | None:
        if window is None:
            return None
        for item in self._items:
            value = _value(item)
            is_window = normal(value) in (normal(window), window_kind(window))
            if is_window:
                return str(item.name()) if _has_name(item) else _title(value)
        return None


def _span(trees: Any) -> Any:
    """Return the window of a row as Spark has it."""
    start, end = BOUNDS
    return trees.expression(f"named_struct('start', `{start}`, 'end', `{end}`)")


def _has_name(item: Any) -> bool:
    return kind(item) == "Alias"


def _is_named(item: Any, text: str) -> bool:
    return _has_name(item) and normal(item.child()) == text


def _value(item: Any) -> Any:
    return item.child() if kind(item) in ("Alias", "UnresolvedAlias") else item


def _title(value: Any) -> str:
    """Return what Spark calls a column without a name."""
    if kind(value) == "UnresolvedAttribute":
        return names(value)[-1]
    return window_kind(value) or _QUOTES.sub("", value.sql())


def _columns(expression: Any) -> set[str]:
    found = [e for e in below(expression) if kind(e) == "UnresolvedAttribute"]
    return {names(e)[-1].casefold() for e in found}


def _is_same(parts: list[str], key: list[str]) -> bool:
    """Tell whether two names mean one column: one of them may lack a qualifier."""
    short, long = sorted(([p.casefold() for p in n] for n in (parts, key)), key=len)
    return long[-len(short) :] == short
