"""What Spark yields for expressions, row by row, errors included; and what we do."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from riverlock.columnar import Rows
from riverlock.spark.columnar.compiler import Compiler
from riverlock.spark.plan_trees import Trees, sequence

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from riverlock.columnar import Expression

__all__ = ["analysed", "compiled", "differences", "of_spark", "settings"]

_FIXED = {
    # Errors are caught around each expression: none may be evaluated outside.
    "spark.sql.subexpressionElimination.enabled": "false",
    # Java's compiler would take longer than all the rest.
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.codegen.wholeStage": "false",
}


@contextmanager
def settings(spark: SparkSession, **changed: str) -> Iterator[None]:
    """Set some of Spark's settings for the block; dots are written as ``__``."""
    wanted = {k.replace("__", "."): v for k, v in changed.items()}
    wanted = _FIXED | wanted
    before = {name: spark.conf.get(name, None) for name in wanted}
    try:
        for name, value in wanted.items():
            spark.conf.set(name, value)
        yield
    finally:
        for name, old in before.items():
            if old is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, old)


def analysed(frame: DataFrame, texts: Sequence[str]) -> Any:
    """Return the analysed projection of expressions."""
    made = frame.selectExpr(*[f"{text} as c{n}" for n, text in enumerate(texts)])
    java: Any = made._jdf
    return java.queryExecution().analyzed()


def compiled(frame: DataFrame, texts: Sequence[str]) -> list[Expression]:
    """Compile expressions."""
    project = analysed(frame, texts)
    compiler = Compiler(frame.sparkSession)
    compiler.bind_columns(project.child())
    return [compiler.of(e) for e in sequence(project.projectList())]


def of_spark(frame: DataFrame, texts: Sequence[str]) -> pa.Table:
    """Let Spark evaluate expressions: structs of a value, or null where it raises."""
    trees = Trees(frame.sparkSession)
    project = analysed(frame, texts)
    catalyst: Any = trees._catalyst.expressions
    caught = []
    for n, each in enumerate(sequence(project.projectList())):
        name = catalyst.Literal.create("v", trees.expression("'v'").dataType())
        value = catalyst.KnownNullable(each.child())
        struct = catalyst.CreateNamedStruct(trees.seq([name, value]))
        caught.append(trees.alias(catalyst.TryEval(struct), f"c{n}"))
    return trees.frame(trees.project(caught, project.child())).toArrow()


def differences(
    table: pa.Table, expression: Expression, theirs: pa.ChunkedArray, now_us: int = 0
) -> list[str]:
    """Return the rows for which an expression differs from what Spark has found."""
    columns = {n: table[n].combine_chunks() for n in table.column_names}
    rows = Rows(columns, table.num_rows, now_us, collects=True)
    mine = rows.value(expression)
    wanted = theirs.combine_chunks()
    assert rows.wrong is not None
    raises = wanted.is_null().to_numpy(zero_copy_only=False)
    found = []
    values = wanted.field(0)
    kind = expression.type.to_arrow()
    if mine.type != kind:
        return [f"is {mine.type}, not {kind}"]
    if values.type != kind:
        values = values.cast(kind)
    for place in range(table.num_rows):
        if raises[place] != rows.wrong[place]:
            word = "raises only in Spark" if raises[place] else "raises only here"
            found.append(f"row {place} {word}: {values[place]} {mine[place]}")
        elif not raises[place] and not _same(mine[place], values[place]):
            found.append(f"row {place}: {mine[place]!r}, Spark has {values[place]!r}")
    return found


def _same(a: pa.Scalar, b: pa.Scalar) -> bool:
    if a.is_valid != b.is_valid:
        return False
    if not a.is_valid:
        return True
    if pa.types.is_floating(a.type):
        x, y = np.float64(a.as_py()), np.float64(b.as_py())
        return bool((x != x and y != y) or (x == y and np.signbit(x) == np.signbit(y)))
    if pa.types.is_nested(a.type):
        return _plain(a) == _plain(b)
    if pa.types.is_timestamp(a.type) or pa.types.is_date(a.type):
        return bool(a.value == b.value)
    return bool(a.equals(b))


def _plain(scalar: pa.Scalar) -> str:
    """Return a nested value as text: NaN and both zeros are what they are."""
    return str(scalar)
