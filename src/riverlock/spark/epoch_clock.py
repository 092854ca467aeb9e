"""The time of day in Spark's expressions: that of the epoch, in all of its stages.

Spark would take the time at which it plans a job, another one in each stage and in each
attempt at the epoch. What cannot have the epoch's time is refused when a flow is built.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from py4j.java_gateway import is_instance_of

from riverlock.spark.plan_trees import Trees, children, kind, sequence
from riverlock.spark.time_literals import time_refused

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["STEADY", "TIMES", "at_time", "has_clock"]

# What Spark writes anew into each plan: the time of day, by kind of expression,
TIMES: Final = frozenset(
    {"CurrentTimestamp", "Now", "LocalTimestamp", "CurrentDate", "CurrentTime"}
    | {"CurrentTimeZone"}
)
# and what is the same in all stages of a run: who asks, and where.
STEADY: Final = frozenset(
    {"CurrentCatalog", "CurrentDatabase", "CurrentPath", "CurrentUser"}
)
_EXPRESSION: Final = "org.apache.spark.sql.catalyst.expressions.Expression"
_QUERY: Final = "org.apache.spark.sql.catalyst.expressions.PlanExpression"


def has_clock(frame: DataFrame) -> bool:
    """Tell whether a frame asks for the time (or the user).

    Raises:
        InvalidFlowError: It does so in a way that the epoch's time cannot answer.
    """
    clock = _Clock(frame.sparkSession, 0)
    plan = _analysed(frame)
    if clock.has_special_text(plan):
        raise time_refused("text such as 'now' or 'today' in place of a time")
    told = clock.plan(plan)
    if clock.is_left_in(told):
        raise time_refused("a function or a cast that Spark takes the time for")
    return clock.is_asked_by(plan)


def at_time(frame: DataFrame, now_us: int) -> DataFrame:
    """Return a frame in which ``now()`` and the like are the given instant."""
    clock = _Clock(frame.sparkSession, now_us)
    plan = _analysed(frame)
    return clock.trees.frame(clock.plan(plan)) if clock.is_asked_by(plan) else frame


def _analysed(frame: DataFrame) -> Any:
    java: Any = frame._jdf
    return java.queryExecution().analyzed()


class _Clock:
    """Writes an instant into plans; nodes without the time of day stay as they are."""

    def __init__(self, spark: Any, now_us: int) -> None:
        self.trees = Trees(spark)
        self._jvm, self._gateway = spark._jvm, spark.sparkContext._gateway
        seconds, micros = divmod(now_us, 1_000_000)
        time = self._jvm.java.time
        self._instant = time.Instant.ofEpochSecond(seconds, micros * 1_000)
        catalyst = self._jvm.org.apache.spark.sql.catalyst
        self._catalyst = catalyst
        self._pattern = catalyst.trees.TreePattern.CURRENT_LIKE()

    def is_asked_by(self, tree: Any) -> bool:
        """Tell whether a plan or an expression asks, also in its queries."""
        return bool(tree.containsPattern(self._pattern))

    def has_special_text(self, plan: Any) -> bool:
        """Tell whether Spark takes text in a plan for a time of day."""
        plans = [plan, *sequence(plan.subqueriesAll())]
        return any(self._is_changed("SpecialDatetimeValues", each) for each in plans)

    def is_left_in(self, plan: Any) -> bool:
        """Tell whether Spark still finds something to write the time into."""
        return self._is_changed("ComputeCurrentTime", plan)

    def _is_changed(self, rule: str, plan: Any) -> bool:
        rules = self._catalyst.optimizer
        # Some functions are casts by another name.
        plain = rules.ReplaceExpressions.apply(plan)
        return not getattr(rules, rule).apply(plain).fastEquals(plain)

    def plan(self, plan: Any) -> Any:
        if not self.is_asked_by(plan):
            return plan
        below = self.trees.with_children(plan, [self.plan(c) for c in children(plan)])
        if not any(map(self.is_asked_by, sequence(below.expressions()))):
            return below
        return below.makeCopy(self._arguments(below))

    def _arguments(self, plan: Any) -> Any:
        """Return the arguments of a node, with the instant in its expressions."""
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
        if self._is_a(_EXPRESSION, argument):
            return self._expression(argument)
        return argument

    def _is_a(self, name: str, thing: Any) -> bool:
        return bool(is_instance_of(self._gateway, thing, name))

    def _expression(self, expression: Any) -> Any:
        if not self.is_asked_by(expression):
            return expression
        if self._is_asked_by_itself(expression):
            return self._answer(expression)
        if self._is_a(_QUERY, expression):
            expression = expression.withNewPlan(self.plan(expression.plan()))
        changed = [self._expression(child) for child in children(expression)]
        return self.trees.with_children(expression, changed) if changed else expression

    def _is_asked_by_itself(self, expression: Any) -> bool:
        return any(map(self._pattern.equals, sequence(expression.nodePatterns())))

    def _answer(self, expression: Any) -> Any:
        if kind(expression) in STEADY:
            return expression
        if kind(expression) not in TIMES:
            raise time_refused(expression.sql())
        literal = self._catalyst.expressions.Literal
        return literal.create(self._moment(expression), expression.dataType())

    def _moment(self, expression: Any) -> Any:
        """Return the value of an expression at the instant."""
        if kind(expression) == "CurrentTimeZone":
            return self.trees.spark.conf.get("spark.sql.session.timeZone")
        if kind(expression) in ("CurrentTimestamp", "Now"):
            return self._instant
        # Spark knows more names of zones than Java.
        zone = expression.zoneId()
        local = self._jvm.java.time.LocalDateTime.ofInstant(self._instant, zone)
        match kind(expression):
            case "LocalTimestamp":
                return local
            case "CurrentDate":
                return local.toLocalDate()
            case _:
                unit = 10 ** (9 - expression.dataType().precision())
                nanos = local.toLocalTime().toNanoOfDay() // unit * unit
                return self._jvm.java.time.LocalTime.ofNanoOfDay(nanos)
