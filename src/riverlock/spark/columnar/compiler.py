"""Walks an expression that Spark has analysed, and makes the compiled form of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from riverlock.columnar import Call, Column, Expression, Literal
from riverlock.core.errors import InvalidConfigError
from riverlock.core.types import Type, type_of
from riverlock.spark.columnar.literals import python_value
from riverlock.spark.columnar.refusals import Refused, refusal
from riverlock.spark.plan_trees import children, kind, sequence
from riverlock.spark.remote import unlogged

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark.sql import DataFrame

__all__ = ["Compiler", "compile_expressions"]

_EXPRESSIONS = "org.apache.spark.sql.catalyst.expressions"


def compile_expressions(
    frame: DataFrame, expressions: Sequence[Any], *, name: str = "step", line: str = ""
) -> tuple[Expression, ...]:
    """Compile Columns or SQL texts over the columns of a frame.

    Raises:
        InvalidFlowError: One is outside of the subset.
    """
    from pyspark.sql import functions as F

    columns = [F.expr(e) if isinstance(e, str) else e for e in expressions]
    names = [f"c{n}" for n in range(len(columns))]
    with unlogged():
        made: Any = frame.select(
            *[c.alias(n) for c, n in zip(columns, names, strict=True)]
        )
    project = made._jdf.queryExecution().analyzed()
    compiler = Compiler(frame.sparkSession)
    try:
        compiler.bind_columns(project.child())
        return tuple(compiler.of(e) for e in sequence(project.projectList()))
    except Refused as error:
        raise refusal(name, error, line) from None


class Compiler:
    """Compiles expressions over the columns of one table; equal ones become one."""

    def __init__(self, spark: Any) -> None:
        """Take the session that has analysed them."""
        self.spark = spark
        self._jvm, self._gateway = spark._jvm, spark.sparkContext._gateway
        patterns = self._jvm.org.apache.spark.sql.catalyst.trees.TreePattern
        self._clock = patterns.CURRENT_LIKE()
        self._bound: dict[int, Any] = {}
        self._defined: dict[int, Any] = {}
        self._interned: dict[Any, Expression] = {}
        self._types: dict[str, Type] = {}

    # Columns

    def bind_columns(self, plan: Any) -> None:
        """Take the columns of a plan as those of the table."""
        for attribute in sequence(plan.output()):
            self._bound[attribute.exprId().id()] = attribute

    def bind(self, attribute: Any, expression: Expression) -> None:
        """Let an attribute stand for an expression."""
        self._bound[attribute.exprId().id()] = expression

    def define(self, number: int, node: Any) -> None:
        """Take what ``defined`` returns for a number."""
        self._defined[number] = node

    def defined(self, number: int) -> Expression:
        """Compile an expression that others refer to by a number."""
        return self.of(self._defined[number])

    # Expressions

    def of(self, node: Any) -> Expression:
        """Compile an expression.

        Raises:
            Refused: It is outside of the subset.
        """
        from riverlock.spark.columnar.functions import BUILDERS

        name = kind(node)
        if name == "AttributeReference":
            return self._attribute(node)
        if name == "Literal" or self._is_constant(node):
            found = self._folded(node)
            if found is not None:
                return found
        build = BUILDERS.get(name)
        if build is not None:
            return build(self, node)
        if self.is_a(node, "RuntimeReplaceable"):
            return self.of(node.replacement())
        raise self.refused(node)

    def all_of(self, nodes: Sequence[Any]) -> list[Expression]:
        """Compile some expressions."""
        return [self.of(each) for each in nodes]

    def _attribute(self, node: Any) -> Expression:
        number = node.exprId().id()
        found = self._bound.get(number)
        if found is None:
            raise Refused(f"column {node.name()!r}, which another step has")
        if not isinstance(found, Expression):
            found = Column(self.type_of(node), str(found.name()))
            self._bound[number] = found
        return found

    def _is_constant(self, node: Any) -> bool:
        return bool(node.foldable()) and not node.containsPattern(self._clock)

    def _folded(self, node: Any) -> Expression | None:
        """Let Spark compute what is the same for all rows; None: that fails."""
        try:
            with unlogged():
                value = node.eval(None)
        except (Py4JError, PySparkException):
            return None  # it fails for each row that there is
        kind_of = self.type_of(node)
        return self.literal(python_value(self, value, kind_of, node), kind_of)

    def constant(self, node: Any) -> Any:
        """Return the value of an argument that must be the same for all rows.

        Raises:
            Refused: It is not.
        """
        found = self.of(node)
        if not isinstance(found, Literal):
            raise Refused(f"{node.sql()} that is not a constant")
        return found.value

    # Making

    def literal(self, value: Any, kind_of: Type) -> Expression:
        """Return a constant."""
        key = ("literal", repr(value), kind_of.ddl)
        return self._once(key, lambda: Literal(kind_of, value))

    def call(
        self,
        name: str,
        arguments: Sequence[Expression],
        kind_of: Type | str,
        *options: Any,
        tried: bool = False,
        node: Any = None,
    ) -> Expression:
        """Return a call."""
        kind_of = type_of(kind_of)
        text = "" if node is None else str(node.sql())[:200]
        key = (name, tuple(map(id, arguments)), kind_of.ddl, repr(options), tried)
        return self._once(
            key, lambda: Call(kind_of, name, tuple(arguments), options, tried, text)
        )

    def made(self, cls: type[Expression], kind_of: Type, *parts: Any) -> Expression:
        """Return a lazy expression."""
        key = (cls.__name__, _identities(parts), kind_of.ddl)
        return self._once(key, lambda: cls(kind_of, *parts))

    def _once(self, key: Any, make: Callable[[], Expression]) -> Expression:
        found = self._interned.get(key)
        if found is None:
            found = self._interned[key] = make()
        return found

    # Questions

    def type_of(self, node: Any) -> Type:
        """Return the type of an expression.

        Raises:
            Refused: It is a type that we do not know.
        """
        text = str(node.dataType().sql())
        if text not in self._types:
            try:
                self._types[text] = type_of(text)
            except InvalidConfigError:
                raise Refused(f"a value of type {text.lower()}", node) from None
        return self._types[text]

    def is_a(self, node: Any, name: str) -> bool:
        """Tell whether a node is of a class or trait of Spark's expressions."""
        from py4j.java_gateway import is_instance_of

        return bool(is_instance_of(self._gateway, node, f"{_EXPRESSIONS}.{name}"))

    def refused(self, node: Any, why: str = "") -> Refused:
        """Return the error for a function that is outside of the subset."""
        name = f"{node.prettyName()}()"
        return Refused(f"{name} {why}".rstrip(), node)

    def children(self, node: Any) -> list[Expression]:
        """Compile the children of a node."""
        return self.all_of(children(node))


def _identities(parts: Any) -> Any:
    if isinstance(parts, tuple):
        return tuple(_identities(each) for each in parts)
    return id(parts) if isinstance(parts, Expression) else parts
