"""The time of day in expressions of Spark: that of the epoch, in all of its stages.

Spark would take the time at which it plans a job, another one in each stage and in
each attempt at the epoch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from py4j.java_gateway import is_instance_of

from riverlock.spark.repeatable import has_clock
from riverlock.spark.sql.tree import Trees, children, kind, sequence

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["at_time"]


def at_time(frame: DataFrame, now_us: int) -> DataFrame:
    """Return a frame in which ``now()`` and its like are the given instant."""
    if not has_clock(frame):
        return frame
    java: Any = frame._jdf
    clock = _Clock(frame.sparkSession, now_us)
    return clock.trees.frame(clock.plan(java.queryExecution().analyzed()))


class _Clock:
    """Writes an instant into plans; nodes without the time of day stay as they are."""

    def __init__(self, spark: Any, now_us: int) -> None:
        self.trees = Trees(spark)
        self._jvm, self._gateway = spark._jvm, spark.sparkContext._gateway
        seconds, micros = divmod(now_us, 1_000_000)
        time = self._jvm.java.time
        self._instant = time.Instant.ofEpochSecond(seconds, micros * 1_000)
        zone = time.ZoneId.of(spark.conf.get("spark.sql.session.timeZone"))
        self._local = time.LocalDateTime.ofInstant(self._instant, zone)
        catalyst = self._jvm.org.apache.spark.sql.catalyst
        self._literal = catalyst.expressions.Literal
        self._pattern = catalyst.trees.TreePattern.CURRENT_LIKE()

    def plan(self, plan: Any) -> Any:
        if not plan.containsPattern(self._pattern):
            return plan
        below = self.trees.with_children(plan, [self.plan(c) for c in children(plan)])
        mine = sequence(below.expressions())
        if not any(each.containsPattern(self._pattern) for each in mine):
            return below
        return below.makeCopy(self._arguments(below))

    def _arguments(self, plan: Any) -> Any:
        """Return what a node is made of, with the instant in its expressions."""
        count = plan.productArity()
        found = self._gateway.new_array(self._jvm.java.lang.Object, count)
        for i in range(count):
            found[i] = self._argument(plan.productElement(i))
        return found

    def _argument(self, argument: Any) -> Any:
        if not hasattr(argument, "getClass"):
            return argument  # text, a truth or a number
        if self._is_a("scala.collection.immutable.Seq", argument):
            return self.trees.seq([self._argument(a) for a in sequence(argument)])
        if self._is_a("scala.Some", argument):
            return self._jvm.scala.Option.apply(self._argument(argument.get()))
        if self._is_a("org.apache.spark.sql.catalyst.expressions.Expression", argument):
            return self._expression(argument)
        return argument

    def _is_a(self, name: str, thing: Any) -> bool:
        return bool(is_instance_of(self._gateway, thing, name))

    def _expression(self, expression: Any) -> Any:
        if not expression.containsPattern(self._pattern):
            return expression
        moment = self._moment(expression)
        if moment is not None:
            return self._literal.create(moment, expression.dataType())
        changed = [self._expression(child) for child in children(expression)]
        return self.trees.with_children(expression, changed) if changed else expression

    def _moment(self, expression: Any) -> Any:
        """Return what an expression is at the instant; None: something else."""
        match kind(expression):
            case "CurrentTimestamp" | "Now":
                return self._instant
            case "LocalTimestamp":
                return self._local
            case "CurrentDate":
                return self._local.toLocalDate()
            case _:
                return None
