"""What the flow should have computed, in plain Spark SQL over the whole input at once.

Nothing of Riverlock takes part: windows and sums over all rows, no epochs, no state.
"""

from pyspark.sql import DataFrame, SparkSession

from examples.fraud.transactions import COLUMNS, LIMIT_CENTS, SEED

_GOOD = f"cents between 1 and {LIMIT_CENTS}"

_QUERIES = {
    # How often was the card used in the minute up to and including this payment?
    "alerts": """
        select card, tx, at, cast(n as int) as payments, total as cents
        from (select *, count(*) over w as n, sum(cents) over w as total
              from good
              window w as (partition by card order by unix_millis(at)
                           range between 59999 preceding and current row))
        where n >= 5
    """,
    "odd": """
        select tx, card, if(cents > 0, 'too large', 'not positive') as why
        from (select * from payments except all select * from good)
    """,
    # Sessions are over once the input has gone ten minutes past their last payment.
    "sessions": """
        select card, started, ended, payments, cents from session
        where ended + interval 10 minutes <= (select max(at) from payments)
    """,
    # One row per merchant and epoch: the totals up to the end of that epoch.
    "merchants": """
        select epoch, merchant,
               sum(n) over w as payments, sum(cents) over w as cents,
               max(largest) over w as largest
        from (select epoch, merchant, count(*) as n, sum(cents) as cents,
                     max(cents) as largest
              from good join epochs on tx >= first and tx < end
              group by epoch, merchant)
        window w as (partition by merchant order by epoch)
    """,
    "state: open sessions": """
        select card, started, ended as last, payments, cents from open_session
    """,
    "state: recent payments": """
        select g.card, g.at, g.cents from good g join open_session s
        on g.card = s.card and unix_millis(g.at) > unix_millis(s.ended) - 60000
    """,
    "state: pending timers": """
        select card, 'event' as kind, ended + interval 10 minutes as at
        from open_session
    """,
    "state: merchant totals": """
        select merchant, count(*) as payments, sum(cents) as cents,
               max(cents) as largest
        from good group by merchant
    """,
}

# A session ends when the card rests for more than ten minutes.
_SESSIONS = """
    select card, min(at) as started, max(at) as ended,
           cast(count(*) as int) as payments, sum(cents) as cents
    from (select *, sum(if(pause > 600000, 1, 0))
                 over (partition by card order by tx) as number
          from (select *, unix_millis(at) - lag(unix_millis(at))
                       over (partition by card order by tx) as pause
                from good))
    group by card, number
"""
_OPEN = """
    select * from session
    where ended + interval 10 minutes > (select max(at) from payments)
"""


def expected(
    spark: SparkSession, rows: int, epochs: list[tuple[int, int, int]]
) -> dict[str, DataFrame]:
    """Return the tables that the flow should have made.

    Args:
        spark: A session.
        rows: How many payments there are.
        epochs: Epoch, first row and row after the last: when totals were written.
    """
    ids = spark.range(rows).selectExpr("id", f"cast({SEED} as bigint) as seed")
    payments = ids.selectExpr(*(f"{sql} as {name}" for name, sql in COLUMNS.items()))
    payments.cache().createOrReplaceTempView("payments")
    payments.where(_GOOD).createOrReplaceTempView("good")
    ranges = spark.createDataFrame(epochs, "epoch int, first bigint, end bigint")
    ranges.createOrReplaceTempView("epochs")
    spark.sql(_SESSIONS).cache().createOrReplaceTempView("session")
    spark.sql(_OPEN).createOrReplaceTempView("open_session")
    return {name: spark.sql(query) for name, query in _QUERIES.items()}
