"""From two frames, one of which was made of the other, to the steps between them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from riverlock.columnar import Steps
from riverlock.core.types import Field, Schema
from riverlock.spark.columnar.compiler import Compiler
from riverlock.spark.columnar.refusals import Refused, refusal
from riverlock.spark.plan_trees import kind, sequence

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from riverlock.columnar import Expression

__all__ = ["compile_steps"]


def compile_steps(
    before: DataFrame, after: DataFrame, *, name: str = "step", line: str = ""
) -> Steps:
    """Compile what leads from one frame to another.

    Args:
        before: A frame; its columns are those of the tables that steps are applied to.
        after: A frame made of it, by one step or by many.
        name: The step as users know it, such as ``where()``.
        line: The user's line.

    Raises:
        InvalidFlowError: Something in it is outside of the subset.
    """
    try:
        return _compiled(before, after, name, line)
    except Refused as error:
        raise refusal(name, error, line) from None


def _compiled(before: Any, after: Any, name: str, line: str) -> Steps:
    base = before._jdf.queryExecution().analyzed()
    plan = after._jdf.queryExecution().analyzed()
    compiler = Compiler(before.sparkSession)
    conditions: list[Expression] = []
    _walk(compiler, plan, base, conditions)
    fields, values = [], []
    for attribute in sequence(plan.output()):
        value = compiler.of(attribute)
        fields.append(Field(str(attribute.name()), value.type))
        values.append(value)
    return Steps(
        conditions=tuple(conditions),
        columns=Schema(tuple(fields)),
        values=tuple(values),
        name=name,
        line=line,
    )


def _walk(
    compiler: Compiler, plan: Any, base: Any, conditions: list[Expression]
) -> None:
    """Bind the columns of a plan, from the bottom to the top."""
    if plan.fastEquals(base):
        compiler.bind_columns(plan)
        return
    match kind(plan):
        case "SubqueryAlias":
            _walk(compiler, plan.child(), base, conditions)
        case "Filter":
            _walk(compiler, plan.child(), base, conditions)
            # A row is out as soon as one of them is not true.
            conditions += map(compiler.of, _conjuncts(plan.condition()))
        case "Project":
            _walk(compiler, plan.child(), base, conditions)
            made = [(e, compiler.of(e)) for e in sequence(plan.projectList())]
            for named, expression in made:
                compiler.bind(named.toAttribute(), expression)
        case other:
            raise Refused(f"{other}, a plan of more than one row")


def _conjuncts(condition: Any) -> list[Any]:
    if kind(condition) == "And":
        return [*_conjuncts(condition.left()), *_conjuncts(condition.right())]
    return [condition]
