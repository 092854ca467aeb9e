"""User-defined aggregates: Python classes beside Spark's aggregate expressions."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from riverlock.connectors.base.sink import is_sink
from riverlock.core.errors import InvalidConfigError, InvalidFlowError, StateError
from riverlock.core.types import Type, TypeLike, type_of
from riverlock.operators.aggregates.partial import PythonAggregate
from riverlock.state.codec import codec_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from riverlock.core.types import Schema

__all__ = [
    "Aggregator",
    "AggregatorError",
    "NamedAggregator",
    "named_aggregates",
    "named_aggregator",
]

_METHODS = ("create", "add", "merge", "result")


class Aggregator:
    """Your own aggregate: ``agg(n="count(*)", spread=Spread("amount"))``.

    Records are added to accumulators, and accumulators are merged, in groups that
    depend on how the input was split. So ``merge`` must be associative, and adding
    records one by one must equal merging the accumulators of each alone; then the
    result does not depend on epochs or tasks. If it must not depend on the order of
    arrival either, ``merge`` must be commutative too. Only the arguments and constants
    of ``__init__`` matter: one aggregator serves all keys, and cannot be assigned to.

    Attributes:
        acc: Type of the accumulator (DDL, PySpark type, Python type or dataclass). A
            struct comes back as an object with the fields as attributes.
        output: Type of the result.
        columns: Columns of a record that ``add`` reads; by default all. Others are not
            sent to Python.
    """

    acc: TypeLike
    output: TypeLike
    columns: Sequence[str] | None = None

    def create(self) -> Any:
        """Return the accumulator of no records."""
        raise NotImplementedError

    def add(self, acc: Any, record: Any) -> Any:
        """Return the accumulator with one more record; it may be changed in place."""
        raise NotImplementedError

    def merge(self, a: Any, b: Any) -> Any:
        """Return one accumulator for two; neither is used afterwards."""
        raise NotImplementedError

    def result(self, acc: Any) -> Any:
        """Return the result of an accumulator, which must not be changed."""
        raise NotImplementedError


class AggregatorError(Exception):
    """A method of an aggregator raised; its error is the cause."""

    def __init__(self, where: str, *, record: Any = None) -> None:
        """Say which method of which aggregate it was."""
        super().__init__(where)
        self.where, self.record = where, record
        # Filled in by those who know it.
        self.key: Any = None


class NamedAggregator(PythonAggregate):
    """An aggregator under a name, between the user's values and stored ones."""

    def __init__(self, name: str, aggregator: Aggregator, columns: Schema) -> None:
        """Take the columns that ``add`` reads."""
        self.name, self.aggregator = name, aggregator
        self._live: Aggregator | None = None
        self.kept = type_of(aggregator.acc)
        self.collects = Type("struct", fields=columns.fields)
        self.output = type_of(aggregator.output)

    @property
    def live(self) -> Aggregator:
        """The aggregator, which must not keep anything between two calls."""
        if self._live is None:
            self._live = _sealed(self.aggregator, self.name)
        return self._live

    def __getstate__(self) -> dict[str, Any]:
        """Leave out what each process makes for itself."""
        return {**self.__dict__, "_live": None}

    def fold(self, values: Iterable[Any]) -> Any:
        """Add records to a new accumulator."""
        codec, add, record = codec_of(self.kept), self.live.add, None
        # Whatever users make a struct of, they get the struct.
        struct = codec.python if self.kept.kind == "struct" else None
        try:
            acc = codec.checked(self.live.create())
            for record in values:
                acc = add(acc, record)
                if struct is not None and type(acc) is not struct:
                    acc = codec.checked(acc)
            return codec.checked(acc)
        except Exception as error:
            where = "create" if record is None else "add"
            raise AggregatorError(self._place(where), record=record) from error

    def merge(self, a: Any, b: Any) -> Any:
        """Make one accumulator of two."""
        try:
            return codec_of(self.kept).checked(self.live.merge(a, b))
        except Exception as error:
            raise AggregatorError(self._place("merge")) from error

    def result(self, kept: Any) -> Any:
        """Return the result of an accumulator; without one, that of no records."""
        try:
            acc = self.live.create() if kept is None else kept
            return codec_of(self.output).checked(self.live.result(acc))
        except Exception as error:
            raise AggregatorError(self._place("result")) from error

    def _place(self, method: str) -> str:
        return f"{method} of aggregate {self.name!r}"


def _sealed(aggregator: Aggregator, name: str) -> Aggregator:
    """Return an aggregator whose attributes cannot be assigned.

    One instance serves all keys of a task, in an order that nobody promises.
    """

    def refuse(self: Aggregator, attribute: str, *value: Any) -> None:
        raise StateError(
            f"aggregate {name!r} assigns its attribute {attribute!r}: one aggregator"
            " serves all keys of a task, so they would share it",
            hint="keep it in the accumulator; set what is the same for all in __init__",
        )

    kind, live = type(aggregator), copy.copy(aggregator)
    attributes = {"__module__": kind.__module__, "__setattr__": refuse}
    made = type(kind.__name__, (kind,), {**attributes, "__delattr__": refuse})
    object.__setattr__(live, "__class__", made)
    return live


def named_aggregates(
    aggregates: Mapping[str, Any] | None, named: Mapping[str, Any]
) -> dict[str, Any]:
    """Return all aggregates of an ``agg``, checked while the user's line is near.

    Raises:
        InvalidFlowError: There are none, or an aggregator is incomplete.
    """
    is_named = aggregates is None or isinstance(aggregates, Mapping)
    every = {**(aggregates or {}), **named} if is_named else {}
    if not every:
        raise InvalidFlowError(
            "agg()",
            expected="named aggregates such as n='count(*)'",
            found="none" if is_named else repr(aggregates),
        )
    for name, each in every.items():
        if is_sink(each):
            raise InvalidFlowError(
                f"agg({name}=)",
                expected="an aggregate",
                found=f"the sink {each.kind!r}",
                hint="agg has no dead letters: Spark has combined the rows when an"
                " aggregator sees them; keep bad records out before, with filter or map"
                " and on_error=",
            )
        if isinstance(each, type) and issubclass(each, Aggregator):
            raise InvalidFlowError(
                f"aggregate {name!r}",
                expected="an instance of an Aggregator",
                found=f"the class {each.__name__}",
                hint=f"write {each.__name__}(...)",
            )
        if isinstance(each, Aggregator):
            _check(name, each)
        elif not isinstance(each, str) and not _is_column(each):
            raise InvalidFlowError(
                f"agg({name}=)",
                expected="SQL text, a Column or an Aggregator",
                found=repr(each),
                hint="write n='count(*)', or total=F.sum('amount')",
            )
    return every


def _is_column(value: object) -> bool:
    """Tell whether a value is PySpark's, which may not be loaded."""
    return type(value).__module__.startswith("pyspark.")


def _check(name: str, aggregator: Aggregator) -> None:
    cls = type(aggregator)
    for method in _METHODS:
        if getattr(cls, method) is getattr(Aggregator, method):
            raise InvalidFlowError(
                f"aggregate {name!r}",
                expected=f"a method {method}",
                found=cls.__name__,
                hint=f"an Aggregator has {', '.join(_METHODS)}",
            )
    for attribute in ("acc", "output"):
        found = getattr(aggregator, attribute, None)
        try:
            type_of(found)
        except InvalidConfigError as error:
            raise InvalidFlowError(
                f"{attribute} of aggregate {name!r}",
                expected="a type such as 'double' or 'struct<low:double,high:double>'",
                found=repr(found),
                hint=f"declare {attribute} in {cls.__name__}",
            ) from error
    columns = aggregator.columns
    # Without columns there would be no records to count.
    if isinstance(columns, str) or (columns is not None and not columns):
        raise InvalidFlowError(
            f"aggregate {name!r}",
            expected="columns as a tuple of names, or None for all",
            found=repr(columns),
        )


def named_aggregator(
    name: str, aggregator: Aggregator, columns: Schema
) -> NamedAggregator:
    """Return an aggregator for an input.

    Raises:
        InvalidFlowError: The input does not have a column that it reads.
    """
    wanted = columns.names if aggregator.columns is None else aggregator.columns
    for column in wanted:
        if column not in columns.names:
            raise InvalidFlowError(
                f"aggregate {name!r}",
                expected=f"some of the columns {', '.join(columns.names)}",
                found=repr(column),
            )
    read = tuple(f for f in columns.fields if f.name in wanted)
    return NamedAggregator(name, aggregator, type(columns)(read))
