"""Queries that a stream cannot answer are refused while the flow is built."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import riverlock as rl
from riverlock.core.errors import InvalidFlowError
from riverlock.engines.running import check
from riverlock.flow.inside import node_of, program_of
from riverlock.operators.output_modes import below_queries
from riverlock.operators.windows.window_operator import Gathering
from riverlock.program.graph import Keyed, Output, inputs_of
from riverlock.program.windows import SessionWindows, TimeWindows
from riverlock.stages.compiled import WriteStage

pytestmark = pytest.mark.spark

SCHEMA = "id bigint, user string, amount double, at timestamp"
HOUR = 3_600_000_000
HERE = Path(__file__).name


@pytest.fixture
def flow(spark: SparkSession) -> rl.Flow:
    flow = rl.Flow("sql")
    for name in ("events", "others"):
        source = rl.sources.files("in", format="json", schema=SCHEMA, missing="wait")
        flow.read(source, uid=name).event_time("at", delay="1 minute", uid=f"{name}-at")
    return flow


# A query, and what the error says: the part, and what to write instead.
REFUSED = {
    "SELECT DISTINCT user FROM events": ("DISTINCT", "deduplicate"),
    "SELECT id FROM events UNION SELECT id FROM others": ("UNION", "UNION ALL"),
    "SELECT * FROM events ORDER BY id": ("ORDER BY", "top"),
    "SELECT * FROM events LIMIT 3": ("LIMIT", "top"),
    "SELECT * FROM (SELECT * FROM events LIMIT 3 OFFSET 1)": ("LIMIT", "top"),
    "SELECT * FROM events DISTRIBUTE BY id": ("DISTRIBUTE BY", "leave it out"),
    "SELECT rank() OVER (PARTITION BY user ORDER BY id) FROM events": ("OVER", "top"),
    "SELECT rank() OVER w FROM events WINDOW w AS (ORDER BY id)": ("OVER", "Process"),
    "SELECT * FROM events e JOIN others o ON e.id = o.id": ("two streams", "join("),
    "SELECT * FROM events, LATERAL (SELECT id FROM others)": ("two streams", "join("),
    "SELECT id FROM events EXCEPT SELECT id FROM others": ("EXCEPT", "anti"),
    "SELECT id FROM events INTERSECT SELECT id FROM others": ("INTERSECT", "semi"),
    "SELECT id FROM events WHERE id IN (SELECT id FROM others)": (
        "sub-query",
        "join(",
    ),
    "SELECT 1 WHERE EXISTS (SELECT 1 FROM events)": ("sub-query", "join("),
    "SELECT id FROM events UNION ALL SELECT 1": ("a table", "methods"),
    "SELECT * FROM events RIGHT JOIN (SELECT 1 AS n) ON n = id": ("outer", "inner"),
    "SELECT * FROM (SELECT 1 AS n) LEFT JOIN events ON n = id": ("outer", "inner"),
    "SELECT * FROM events FULL JOIN (SELECT 1 AS n) ON n = id": ("outer", "inner"),
    "SELECT * FROM events TABLESAMPLE (1 PERCENT)": ("TABLESAMPLE", "hash"),
    "SELECT * FROM events PIVOT (sum(amount) FOR user IN ('a'))": ("PIVOT", "FILTER"),
    "SELECT count(*) FROM events": ("without GROUP BY", "window"),
    "SELECT 1 FROM events HAVING count(*) > 1": ("HAVING without", "window"),
    "SELECT user, count(*) FROM events GROUP BY CUBE (user)": ("CUBE", "UNION ALL"),
    "SELECT user FROM events GROUP BY GROUPING SETS ((user))": ("SETS", "UNION ALL"),
    "SELECT user, sum(DISTINCT id) FROM events GROUP BY user": (
        "DISTINCT in an aggregate",
        "collect_set",
    ),
    "SELECT user, count(DISTINCT id, amount) FROM events GROUP BY user": (
        "of one value",
        "collect_set",
    ),
    "SELECT user, sum(count(*)) FROM events GROUP BY user": (
        "within an aggregate",
        "sub-select",
    ),
    "SELECT user, mode() WITHIN GROUP (ORDER BY id) FROM events GROUP BY user": (
        "WITHIN GROUP",
        "percentile_approx",
    ),
    "SELECT *, count(*) FROM events GROUP BY user": ("* in SELECT", "name the keys"),
    "SELECT user, amount, count(*) FROM events GROUP BY user": (
        "'amount'",
        "a column of GROUP BY",
    ),
    "SELECT user, count(*), count(*) FROM events GROUP BY user": ("twice", "AS n"),
    "SELECT count(*) FROM events GROUP BY 2": ("GROUP BY 2", "1 to 1"),
    "SELECT count(*) FROM events GROUP BY window(at, '1 hour'), window(at, '1 day')": (
        "more than one window",
        "keep one",
    ),
    "SELECT window(at, '1 day') FROM events GROUP BY window(at, '1 hour')": (
        "window(at, '1 day')",
        "the window of GROUP BY",
    ),
    "SELECT 1 AS n FROM events GROUP BY window(at, '1 hour', '2 hours')": (
        "at most the size",
        "do not fit",
    ),
    "SELECT 1 AS n FROM events GROUP BY window(at, '1 month')": ("'1 month'", "fixed"),
    "SELECT 1 AS n FROM events GROUP BY window(at, user)": (
        "an expression",
        "fixed durations",
    ),
    "SELECT 1 AS n FROM events GROUP BY session_window(at, '1 s', '2 s')": (
        "2 durations",
        "fixed durations",
    ),
    "SELECT 1 AS n FROM events GROUP BY window(now(), '1 hour')": (
        "the event time, at",
        "event_time(",
    ),
    "SELECT 1 AS n FROM (SELECT id FROM events) GROUP BY window(at, '1 hour')": (
        "a stream with event time",
        "event_time(",
    ),
    "SELECT 1 AS n FROM (SELECT now() at FROM events) GROUP BY window(at, '1 hour')": (
        "a stream with event time",
        "event_time(",
    ),
    "SELECT user, count(*) n FROM events GROUP BY user HAVING n > 3": (
        "HAVING over",
        "taken back",
    ),
    "SELECT * FROM (SELECT user, count(*) n FROM events GROUP BY user) WHERE n > 3": (
        "change with every epoch",
        "add window",
    ),
    "SELECT n FROM (SELECT count(*) n FROM events GROUP BY user) GROUP BY n": (
        "change with every epoch",
        "add window",
    ),
    "WITH RECURSIVE r AS (SELECT id FROM events) SELECT * FROM r": (
        "RECURSIVE",
        "DataFrame",
    ),
    "INSERT INTO somewhere SELECT * FROM events": ("Insert", "methods"),
    "SELECT * FROM nowhere JOIN events": ("'nowhere'", "flow.sql(query, nowhere="),
    "SELECT 1": ("tables only", "events=stream"),
    "SELECT id\n FROM events WHRE id = 1": ("near 'id'", "(line 2, pos 18)"),
}


@pytest.mark.parametrize("query", REFUSED)
def test_refused_queries_say_which_part_and_what_to_write(
    flow: rl.Flow, query: str
) -> None:
    with pytest.raises(InvalidFlowError) as caught:
        flow.sql(query)

    text, *where = str(caught.value).splitlines()
    assert all(part in text for part in REFUSED[query]), text
    assert [Path(line.split(":")[0].strip()).name for line in where] == [HERE]
    assert "__rl" not in text


@pytest.mark.parametrize(
    ("call", "window"),
    [
        ("window(at, '1 hour')", TimeWindows(size_us=HOUR, slide_us=HOUR)),
        (
            "window(at, '1 hour', '30 minutes', '-5 minutes')",
            TimeWindows(
                size_us=HOUR, slide_us=HOUR // 2, offset_us=HOUR // 2 - HOUR // 12
            ),
        ),
        ("session_window(e.AT, '1 hour')", SessionWindows(gap_us=HOUR)),
        (
            "session_window(at, if(amount > 9, '1 hour', '1 minute'))",
            SessionWindows(gap_expr="`gap_1`"),
        ),
    ],
)
def test_group_by_becomes_our_operators(
    flow: rl.Flow, call: str, window: TimeWindows | SessionWindows
) -> None:
    query = f"""SELECT e.user, {call}, upper(user), sum(amount) AS total, count(*)
        FROM events e GROUP BY {call}, user, upper(user)"""

    flow.sql(query, uid="q", lateness="1 minute")

    (keyed,) = program_of(flow).find(Keyed)
    assert keyed.uid == "q"
    assert keyed.keys == ("user", "key_1")
    assert keyed.windows == Gathering(window=window, lateness_us=60_000_000)
    assert keyed.aggregates == {"total": "sum(`arg_1`)", "agg_1": "count(1)"}


def test_modes_are_those_of_the_operators(flow: rl.Flow) -> None:
    memory = rl.sinks.memory()
    hours = """SELECT * FROM (SELECT user, window(at, '1 hour') AS w, count(*) AS n
        FROM events GROUP BY user, window(at, '1 hour')) """
    plain, chosen = flow.sql(hours), flow.sql(f"{hours} WHERE n > 3")
    sessions = flow.sql("""SELECT session_window(at, '1 hour') AS s, count(*) AS n
        FROM events GROUP BY session_window(at, '1 hour')""")
    running = flow.sql("SELECT user, count(*) FROM events GROUP BY user", uid="users")

    for stream, mode, said in (
        (chosen, "update", "could not be taken back"),
        (sessions, "update", "its old row is taken back"),
        (running, "append", "change with every epoch"),
        (flow.sql("SELECT id FROM events"), "update", "one mode only"),
    ):
        with pytest.raises(InvalidFlowError, match=said):
            stream.write(memory, mode=mode)
    for stream, mode, output in (
        (plain, "append", "main"),
        (plain, "update", "updates"),
        (chosen, "append", "main"),
        (running, "update", "main"),
    ):
        stream.write(memory, mode=mode)
        _, below = below_queries(program_of(flow).writes[-1].input)
        assert isinstance(below, Output)
        assert below.name == output
    sessions.write(memory, mode="complete")
    _, below = below_queries(program_of(flow).writes[-1].input)
    assert isinstance(below, Output)
    assert isinstance(below.input, Keyed)
    assert below.input.keys == ("window_start", "window_end")


def test_calls_keep_what_is_said_about_their_rows(
    flow: rl.Flow, spark: SparkSession
) -> None:
    flow.sql("""SELECT user, first(id) AS a, first(Id IGNORE NULLS) AS b,
        last(id) FILTER (WHERE id > 1) AS c, count(DISTINCT id) AS d, count(id) AS e,
        count(DISTINCT Id) + 1 AS again FROM events GROUP BY user""").write(
        rl.sinks.memory()
    )

    flow.check(spark=spark)
    (keyed,) = program_of(flow).find(Keyed)
    assert keyed.aggregates == {
        "a": "first(`arg_1`)",
        "b": "first(`arg_1`) IGNORE NULLS",
        "c": "last(`arg_1`) FILTER (WHERE `arg_2`)",
        "d": "count(DISTINCT `arg_1`)",
        "e": "count(`arg_1`)",
    }


def test_a_part_that_is_used_twice_has_state_once(flow: rl.Flow) -> None:
    flow.sql(
        """WITH n AS (SELECT user, count(*) c FROM events
             GROUP BY user, window(at, '1 hour')),
           unused AS (SELECT user FROM events GROUP BY user)
        SELECT user, c FROM n UNION ALL SELECT user, -c FROM n""",
        uid="q",
    )

    assert [k.uid for k in program_of(flow).find(Keyed)] == ["q"]


def test_late_records_have_what_the_query_reads(
    flow: rl.Flow, spark: SparkSession
) -> None:
    rows = flow.sql("""SELECT user, w.start AS s FROM (SELECT user, sum(-amount) AS n,
        window(at, '1 hour') AS w FROM events GROUP BY user, window(at, '1 hour'))""")
    rows.late.write(rl.sinks.memory(), uid="late")

    (compiled,) = check(program_of(flow), spark=spark)

    (stage,) = [s for s in compiled.stages if isinstance(s, WriteStage)]
    assert stage.schema.ddl == "user string, arg_1 double, at timestamp"
    with pytest.raises(InvalidFlowError, match="the output of a window"):
        _ = flow.sql("SELECT * FROM events").late


def test_queries_over_queries_know_their_rows(flow: rl.Flow) -> None:
    hourly = flow.sql("""SELECT user, window(at, '1 hour') AS w, count(*) AS n
        FROM events GROUP BY user, window(at, '1 hour')""")
    flow.sql("SELECT 1 AS n FROM h GROUP BY window(window_time(w), '1 day')", h=hourly)
    both = flow.sql("SELECT w FROM a UNION ALL SELECT w FROM b", a=hourly, b=hourly)
    flow.sql("SELECT 1 AS n FROM h GROUP BY window(w, '1 day')", h=both)
    running = flow.sql("SELECT user, count(*) AS n FROM events GROUP BY user")
    by_hand = program_of(flow).streams["events"].key_by("user").agg(n="count(*)")

    flow.sql("SELECT n + 1 AS n FROM r", r=running)
    for rows in (running, by_hand):
        with pytest.raises(InvalidFlowError, match="change with every epoch"):
            flow.sql("SELECT * FROM r WHERE n > 3", r=rows)


def test_columns_are_named_as_spark_does(flow: rl.Flow, spark: SparkSession) -> None:
    query = """SELECT e.user, session_window, session_window.end, count(*), upper(user),
        sum(amount) / count(*), concat(user, 'x') AS X, max(amount) AS user_sum
        FROM events e GROUP BY user, session_window(at, '1 minute')"""
    flow.sql(query).write(rl.sinks.memory())

    (compiled,) = check(program_of(flow), spark=spark)

    table = spark.createDataFrame([], SCHEMA)
    expected = spark.sql(query.replace("events", "{events}"), events=table).columns
    (stage,) = [s for s in compiled.stages if isinstance(s, WriteStage)]
    assert list(stage.schema.names) == expected


def test_names_are_given_or_uids_of_sources(flow: rl.Flow) -> None:
    other = flow.read(rl.sources.files("x", format="json", schema=SCHEMA))
    twice = other.event_time("at")

    found = node_of(flow.sql("SELECT * FROM events"))
    given = node_of(flow.sql("SELECT * FROM Events", events=twice))

    assert inputs_of(found) == (node_of(program_of(flow).streams["events-at"]),)
    assert inputs_of(given) == (node_of(twice),)
    program_of(flow).streams["events"].event_time("at")
    with pytest.raises(InvalidFlowError, match="2 of them"):
        flow.sql("SELECT * FROM events")


def test_arguments_that_make_no_sense_are_refused(flow: rl.Flow) -> None:
    foreign = rl.Flow("other").read(
        rl.sources.files("in", format="json", schema=SCHEMA, missing="wait")
    )
    for options, text in (
        ({"events": 3}, "a DataFrame"),
        ({"events": foreign}, "a stream of flow 'sql'"),
        ({"uid": "q"}, "leave uid= out"),
        ({"lateness": "1 hour"}, "leave lateness= out"),
    ):
        with pytest.raises(InvalidFlowError, match=text):
            flow.sql("SELECT * FROM events", **options)


def test_a_refused_query_leaves_nothing(flow: rl.Flow) -> None:
    query = "SELECT user, count(*) AS n FROM events GROUP BY user"
    with pytest.raises(InvalidFlowError, match="leave lateness= out"):
        flow.sql(query, uid="q", lateness="1 hour")

    assert program_of(flow).keyed == []
    flow.sql(query, uid="q")
    assert [k.uid for k in program_of(flow).keyed] == ["q"]


def test_what_only_spark_knows_is_told_by_check(
    flow: rl.Flow, spark: SparkSession
) -> None:
    for query, text in (
        ("SELECT missing FROM events", "needs an existing column, .* got 'missing'"),
        ("SELECT id, id + 1 AS id FROM events", "id twice"),
        (
            "SELECT upper(user) AS id, count(*) n FROM events GROUP BY id",
            "the name of both",
        ),
        ("SELECT user, mode(id) m FROM events GROUP BY user", "aggregate 'm'"),
    ):
        flow.sql(query).write(rl.sinks.memory())
        with pytest.raises(InvalidFlowError, match=text):
            flow.check(spark=spark)
        program_of(flow).writes.clear()
        program_of(flow).keyed.clear()
