"""Spark's expressions over Arrow tables, without Spark: whole columns at a time.

The driver compiles what Spark has analysed (``riverlock.spark.columnar``); the result
is plain data that a task evaluates. What it yields is what Spark yields, row by row:
types, nulls, NaN, overflow, time zones. What cannot be evaluated so is refused by name
when it is compiled.

In the driver, with the frames of the jobs engine over no rows::

    from riverlock.spark.columnar import compile_steps

    before, after = frames.frame(node.input), frames.frame(node)
    steps = compile_steps(before, after, name="where()", line=node.line)

``steps`` are frozen and picklable. In a task::

    table = steps.apply(table, now_us=order.now_us)

Columns of ``before`` are known by their names. Hidden columns
(``riverlock.core.hidden_columns``) of the table that the steps do not mention stay
beside the rows, and are filtered with them. A frame may be many steps away from the
other one; it is best to compile them together: a column that nobody reads is not
evaluated, and one behind a filter only for the rows that are left, as Spark does it.
"""

from riverlock.columnar.expressions import Call, Column, Expression, Literal, Moment
from riverlock.columnar.lazy import Both, Cases, Either, FirstValue, Tried
from riverlock.columnar.rows import Rows
from riverlock.columnar.steps import Steps
from riverlock.columnar.wrong import WrongValueError

__all__ = [
    "Both",
    "Call",
    "Cases",
    "Column",
    "Either",
    "Expression",
    "FirstValue",
    "Literal",
    "Moment",
    "Rows",
    "Steps",
    "Tried",
    "WrongValueError",
]
