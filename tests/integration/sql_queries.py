"""Queries over streams, the rows that they are asked of, and what batches say."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Any

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

import riverlock as rl

# A second per row, up to ten seconds late.
COLUMNS = {
    "action": "if(id % 11 = 0, null, concat('a', pmod(xxhash64(id), 3)))",
    "user": "pmod(xxhash64(id, 1), 4)",
    "amount": "pmod(xxhash64(id, 2), 1000) - 500",
    "tags": "array('x', concat('t', id % 2))",
    "at": "timestamp_seconds(1767225600 + id - pmod(xxhash64(id, 4), 10))",
}
ROWS = 300

ROW_BY_ROW = {
    "expressions": """SELECT upper(action) AS what, amount * 2, AT,
        CASE WHEN amount > 0 THEN 'in' ELSE 'out' END AS way FROM events
        WHERE user <> 2""",
    "stars": """SELECT e.*, to_json(struct(*)) AS text
        FROM (SELECT user, amount FROM events WHERE amount > 0) e WHERE e.user = 1""",
    "lateral view": """SELECT user, tag FROM events
        LATERAL VIEW explode(tags) t AS tag WHERE events.amount > 0""",
    "generators": """SELECT user, tag, explode(tags) AS again FROM events,
        LATERAL explode(tags) AS t(tag)""",
    "tables": """WITH named AS (SELECT id, upper(name) AS name FROM users)
        SELECT e.user, n.name, m.name AS other, amount FROM events e
        JOIN named n ON e.user = n.id LEFT JOIN users m ON m.id = e.user + 1
        WHERE e.user IN (SELECT max(id) FROM named GROUP BY name)""",
    "table first": "SELECT id, amount FROM users RIGHT JOIN events ON id = user",
}
GROUPED = {
    "example": """SELECT action, window(at, '1 minute') w, count(*) n FROM events
        GROUP BY action, window(at, '1 minute')""",
    "sliding": """SELECT user AS who, window.start AS s, s + interval 1 hour AS t,
        count(*), sum(amount) / count(*) AS mean, avg(amount) AS average,
        max(action) AS who_sum,
        count(*) * (SELECT count(*) FROM users) AS many
        FROM events GROUP BY who, window(at, '1 minute', '20 seconds', '-7 seconds')""",
    "sessions": """SELECT action, e.user, session_window, count(*) FROM events e
        GROUP BY session_window(at, CASE WHEN amount > 0 THEN '30 seconds'
          WHEN amount < -400 THEN NULL ELSE '3 seconds' END), action, user""",
    "without keys": """SELECT window(at, '30 seconds') AS w, count(*) AS n,
        count_if(amount > 0) AS up, sum(amount) FILTER (WHERE user = 1) AS ones
        FROM events WHERE amount > -400 GROUP BY ALL
        HAVING n > 12 AND max(amount) > 0 AND minute(w.start) < 4""",
    "sessions without keys": """SELECT session_window.start AS s,
        median(amount) AS middle, percentile_approx(amount, array(0.1, 0.9)) AS most,
        bool_or(amount > 490) FILTER (WHERE user <> 2) AS high
        FROM events GROUP BY session_window(at, '4 seconds')""",
    "distinct": """SELECT user % 2 AS half, window(at, '20 seconds').start AS s,
        count(DISTINCT action) AS actions, count(action) AS n,
        count(DISTINCT amount % 5) FILTER (WHERE amount > 0) AS fifths
        FROM events GROUP BY half, window(at, '20 seconds')""",
    "windows of windows": """WITH fine AS (
          SELECT user % 2, window(at, '10 seconds') AS w, count(*) AS n FROM events
          GROUP BY 1, 2)
        SELECT window(w, '1 minute') AS minute, max(n) AS most FROM fine
        GROUP BY window(w, '1 minute')""",
    "aggregates": """SELECT user, window(at, '1 minute') AS w,
        count(DISTINCT action) AS d,
        count(DISTINCT amount) FILTER (WHERE amount > 0) AS up,
        bool_and(amount > -490) FILTER (WHERE action = 'a1') AS all_high,
        max_by(amount, xxhash64(at, amount)) FILTER (WHERE action IS NULL) AS some
        FROM events GROUP BY user, window(at, '1 minute')
        HAVING count(DISTINCT action) > 1""",
    "union": """SELECT name, window(t, '1 minute').start AS s, sum(a) AS total FROM
        (SELECT at AS t, name, abs(amount) AS a FROM events e
          JOIN users u ON e.user = u.id
         UNION ALL SELECT at AS t, 'nobody', 7S FROM events WHERE amount > 0)
        GROUP BY name, window(t, '1 minute')""",
}
# Methods that only Spark runs, and what a batch says for them.
METHODS = {
    "joined": """SELECT user, action, amount, tags, at, name FROM events
        JOIN users ON user = id""",
    "by value": """SELECT name, window.start, window.end, count(*) FROM events
        LEFT JOIN users ON user = id GROUP BY name, window(at, '40 seconds')""",
    "by window": """SELECT window.start, window.end, count(*) FROM events
        GROUP BY window(at, '1 minute', '20 seconds')""",
}
RUNNING = """SELECT lower(action) AS what, count(*) AS n, sum(amount) + 1 AS total
    FROM events GROUP BY lower(action)"""


def users(spark: SparkSession) -> DataFrame:
    return spark.createDataFrame([(1, "ann"), (2, "bob")], "id long, name string")


def table(spark: SparkSession) -> DataFrame:
    chosen = [F.expr(text).alias(name) for name, text in COLUMNS.items()]
    return spark.range(ROWS).select(*chosen)


def events(flow: rl.Flow) -> rl.Stream:
    source = rl.sources.generator(COLUMNS, rows=ROWS, bounded=True)
    return flow.read(source, uid="events").event_time("at", delay="10 seconds")


def of_methods(rows: rl.Stream) -> dict[str, rl.Stream]:
    def named(spark: SparkSession) -> DataFrame:
        return users(spark).withColumnRenamed("id", "user")

    every = rows.join_static(named, on="user", how="left")
    joined = rows.join_static(named, on="user")
    return {
        "joined": joined.select("user", "action", "amount", "tags", "at", "name"),
        "by value": every.count_by_value_and_window("name", "40 seconds"),
        "by window": rows.count_by_window("1 minute", "20 seconds"),
    }


def comparable(value: Any) -> Any:
    if isinstance(value, float):
        return round(value, 6)
    if isinstance(value, datetime):
        return round(value.timestamp() * 1_000_000)
    if isinstance(value, dict):
        return tuple(comparable(v) for v in value.values())
    if isinstance(value, Row | tuple | list):
        return tuple(comparable(v) for v in value)
    return value


@contextmanager
def views(spark: SparkSession) -> Iterator[None]:
    """Let Spark know the names of the tables, too."""
    for name, frame in {"events": table(spark), "users": users(spark)}.items():
        frame.createOrReplaceTempView(name)
    try:
        yield
    finally:
        for name in ("events", "users"):
            spark.catalog.dropTempView(name)
