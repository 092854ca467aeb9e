"""Flows as users write them: type checkers find no error in any line, nor in an editor.

Never run; ``make check`` has mypy and basedpyright look at it. A test makes sure that
every public name is used here.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, assert_type

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import riverlock as rl


@dataclass
class Order:
    user: str
    amount: float
    at: datetime


class Velocity(rl.Process):
    """State, timers, parameters, side outputs."""

    output = "user string, spent double, calls long"

    limit = rl.Param(100.0, doc="alert above")
    spent = rl.Value("double", default=0.0)
    token = rl.Value("string", ttl="1 hour")
    recent = rl.List("double")
    by_shop = rl.Map("string", "long", ttl=timedelta(days=1))
    best = rl.Reducing("double", max)
    rules = rl.Map("string", "double", scope="broadcast")
    odd = rl.SideOutput("user string, why string")

    def __init__(self, factor: float) -> None:
        self.factor = factor

    def open(self) -> None:
        self.names = {"a": 1}

    def on_event(self, record: Any, ctx: rl.Context) -> Iterator[tuple[Any, ...]]:
        self.spent += record.amount * self.factor
        self.recent.append(record.amount)
        self.recent = [*self.recent[-9:], 0.0]
        self.by_shop["a"] = self.by_shop.get("a", 0) + 1
        self.best.add(record.amount)
        total: float = self.spent + sum(self.recent)
        if self.token is None and total > self.limit:
            assert_type(self.limit, float)
            ctx.emit(self.odd, (ctx.key, "much"))
        del self.token
        if ctx.time is not None:
            ctx.set_timer(ctx.time + rl.minutes(5))
            ctx.delete_timer(ctx.time + rl.seconds(5) + rl.milliseconds(1))
        ctx.set_timer(ctx.now + rl.hours(1) + rl.days(1), processing=True)
        late: bool = ctx.watermark is not None and ctx.watermark < ctx.now
        yield ctx.key, self.spent, ctx.epoch + ctx.random.randint(0, 1) + int(late)

    def on_timer(self, at: datetime, ctx: rl.Context) -> list[dict[str, Any]]:
        pending: list[datetime] = ctx.timers()
        return [{"user": ctx.key, "spent": self.best.value, "calls": len(pending)}]

    def on_broadcast(self, record: Any, ctx: rl.Context) -> None:
        self.rules[record.name] = record.limit

    def on_control(self, record: Any, ctx: rl.Context) -> None:
        self.spent = record.spent

    def on_initial(self, record: Any, ctx: rl.Context) -> None:
        self.spent = record.spent


class Paid(rl.TwoInputProcess):
    output = Order

    amount = rl.Value(float)

    def on_left(self, record: Any, ctx: rl.Context) -> Iterator[Order]:
        yield Order(user=ctx.key, amount=self.amount or 0.0, at=record.at)

    def on_right(self, record: Any, ctx: rl.Context) -> None:
        self.amount = record.amount


class Spread(rl.Aggregator):
    acc = "struct<low:double,high:double>"
    output = "double"
    columns = ("amount",)

    def create(self) -> tuple[float, float]:
        return (float("inf"), float("-inf"))

    def add(self, acc: Any, record: Any) -> Any:
        return (min(acc.low, record.amount), max(acc.high, record.amount))

    def merge(self, a: Any, b: Any) -> Any:
        return (min(a.low, b.low), max(a.high, b.high))

    def result(self, acc: Any) -> float:
        spread: float = acc.high - acc.low
        return spread


class Part:
    def rows(self) -> list[tuple[int]]:
        return [(1,)]


class Counter:
    def initial(self) -> int:
        return 0

    def latest(self, start: int) -> int:
        return start + 1

    def advance(self, start: int, latest: int, max_rows: int) -> int:
        return min(latest, start + max_rows)

    def has_ended(self, start: int, latest: int) -> bool:
        return start == latest

    def rows_between(self, start: int, end: int) -> int | None:
        return None

    def partitions(self, start: int, end: int) -> list[rl.sources.SourcePartition]:
        return [Part()]

    def close(self) -> None: ...


class Counting:
    kind = "counting"
    schema = "n long"

    def reader(self, uid: str) -> rl.sources.SourceReader:
        return Counter()


def sources(flow: rl.Flow) -> rl.Stream:
    mine: rl.sources.ReplayableSource = Counting()
    print(flow.read(mine))
    made: list[rl.sources.Source] = [
        rl.sources.files("in/", format="json", schema=Order, bounded=True),
        rl.sources.kafka("host:9092", ["a", "b"], value="json", schema="user string"),
        rl.sources.sql("sqlite:///shop.db", table="orders", column="id"),
        rl.sources.generator({"user": "concat('u', id % 7)"}, rows_per_second=10),
        rl.sources.rate(5.0),
        rl.sources.socket("localhost", 9999),
        rl.sources.channel("other/", "scored", timed=False),
        rl.sources.python(object, schema="user string", host="example"),
        rl.sources.spark_stream(
            lambda spark: spark.readStream.format("rate").load(), channel="rate"
        ),
    ]
    first, *others = [flow.read(s, uid=f"s{n}") for n, s in enumerate(made)]
    table = rl.tables.redis("redis://host", key="user", schema="user string, n int")
    return first.union(*others).join_static(table, on="user", how="left")


def staged(sink: rl.sinks.TwoPhaseSink, use: rl.sinks.SinkUse) -> rl.sinks.Stager:
    return sink.stager(use)


def committed(committer: rl.sinks.Committer) -> str:
    return committer.guarantee


def sinks(stream: rl.Stream) -> rl.sinks.MemorySink:
    def each_epoch(df: DataFrame, epoch: int) -> None:
        df.write.mode("overwrite").parquet(f"out/{epoch}")

    def each_row(row: dict[str, Any], token: str) -> None:
        print(row["user"], token)

    for sink in (
        rl.sinks.files("out/", format="parquet", partition_by=["user"]),
        rl.sinks.kafka("host:9092", "out", key="user"),
        rl.sinks.sql("sqlite:///out.db", table="t", how="upsert", key="user"),
        rl.sinks.delta("delta/", partition_by="user"),
        rl.sinks.redis("redis://host", key="user", ttl="1 hour"),
        rl.sinks.http("https://host/in", headers={"a": "b"}, rate=5),
        rl.sinks.console(rows=5),
        rl.sinks.for_each_epoch(each_epoch),
        rl.sinks.for_each_row(each_row),
    ):
        stream.write(sink)
    memory = rl.sinks.memory()
    stream.write(memory, uid="memory", mode="append")
    return memory


def stateless(stream: rl.Stream) -> rl.Stream:
    bad: rl.Stream = stream.bad
    bad.write(rl.sinks.console())
    return (
        stream.select("user", F.col("amount"), "at")
        .where("amount > 0")
        .where(F.col("amount") < 1000)
        .filter(lambda r: r.amount > 3)
        .filter("amount > 3")
        .with_column("day", "date(at)")
        .transform(lambda df: df.withColumn("x", F.lit(1)))
        .map(lambda r: (r.user, 1), "user string, n int", on_error=rl.sinks.memory())
        .flat_map(lambda r: [r], output="user string, n int", uid="flat")
        .event_time("at", delay="1 minute", idle_after=rl.minutes(1), uid="at")
    )


def loops(flow: rl.Flow, stream: rl.Stream) -> None:
    again: rl.Stream = flow.loop("user string", uid="a", region="main", max_rounds=9)
    timed = flow.loop("user string, at timestamp").event_time("at")
    stream.union(again, timed).feed(again)
    stream.feed(timed)
    controlled: rl.Stream = stream.key_by("user").process(Velocity(2.0), control=again)
    controlled.write(rl.sinks.memory())


def keyed(stream: rl.Stream, other: rl.Stream) -> list[rl.Stream]:
    published: rl.Stream = stream.publish("scored")
    by: rl.KeyedStream = published.region(
        "other",
        guarantee="at least once",
        uid="over",
        bound=rl.Bound(rows=1_000, bytes=10**6, age="1 minute"),
        parallelism=2,
        max_rows_per_epoch=100,
        epoch_target="1 second",
    ).key_by("user")
    right = other.key_by("user")
    velocity = by.process(
        Velocity(2.0), uid="v", broadcast=other, on_error=rl.sinks.memory()
    )
    happened = (
        rl.pattern("cart", lambda e: e.kind == "cart")
        .without("left", lambda e: e.kind == "left")
        .optional("coupon", lambda e: e.kind == "coupon")
        .next("buy", lambda e, before: e.n == before["cart"].n)
        .then("end", lambda e: True)
        .within("10 minutes")
    )
    return [
        velocity,
        velocity.side("odd"),
        velocity.late,
        by.agg({"n": "count(*)"}, total=F.sum("amount"), spread=Spread(), uid="agg"),
        by.count(),
        by.running_count(),
        by.reduce(lambda a, b: b),
        by.map_with_state(lambda r, s: (None, s), "long", "n long", timeout="1 hour"),
        by.update_state_by_key(lambda records, state: len(records), "long"),
        by.deduplicate(within="1 hour"),
        by.top(3, by="amount", descending=False),
        by.sample(3),
        by.match(happened, "user string", lambda e: (e["cart"].user,)),
        by.connect(right).process(Paid(), uid="paid"),
        by.join(right, within=("-1 minute", "5 minutes"), how="left"),
        by.join(right, window=rl.tumbling("1 hour")),
        by.join_latest(right, valid_for=rl.hours(1)),
        by.lookup(right, ttl="1 day"),
        by.reduce_by_key_and_window(lambda a, b: a, "1 hour", "5 minutes"),
    ]


def windows(stream: rl.Stream) -> list[rl.Stream]:
    by = stream.key_by("user")
    hourly: rl.WindowedStream = by.window(rl.tumbling("1 hour"), lateness="5 minutes")
    early = rl.early(count=1000, every="1 minute")
    return [
        hourly.agg(n="count(*)", uid="hourly"),
        hourly.count(),
        hourly.reduce(lambda a, b: a, uid="folded"),
        hourly.apply(lambda key, window, records: [(key,)], "user string"),
        hourly.top(3, by="amount"),
        by.window(rl.sliding("1 hour", rl.minutes(5)), trigger=early).count(),
        by.window(rl.sessions("10 minutes"), trigger=rl.at_watermark()).count(),
        by.window(rl.sessions(gap_expr="gap")).count(),
        by.window(rl.count_windows(10, 5)).count(),
        stream.window(rl.global_window(), trigger=early, accumulate=False).count(),
        stream.count_by_window("1 hour"),
        stream.count_by_value_and_window("user", "1 hour", "5 minutes"),
        stream.reduce_by_window(lambda a, b: a, "1 hour"),
    ]


def running(flow: rl.Flow, spark: SparkSession | None = None) -> None:
    options: rl.RunKeywords = {"available_now": True, "parallelism": "auto"}
    spark = spark or rl.spark_session("shop", master="local[2]")
    flow.renamed({"old": "new"}).retired("gone").retired_columns("orders", "note")
    flow.abandoned("out", epoch=5)
    print(flow.name)
    graph: rl.Graph = flow.graph
    print(graph, graph.svg(), graph.mermaid(), graph.to_dict(), graph.boxes[0].uid)
    flow.sql("SELECT * FROM events", events=flow.sql("SELECT 1"), uid="q")
    flow.check(store="store/", spark=spark)

    def show(status: rl.Status) -> None:
        print(status.flow, status.rows_per_second, status.updated.isoformat())

    status: rl.Status = flow.run("store/", **options)
    handle: rl.Handle = flow.start("store/", spark=spark, on_status=show)
    epoch: int = handle.set("v", limit=5.0) + handle.reset("v", "limit")
    handle.rescale(4)
    named: str = handle.savepoint("before", protocol="aligned").name
    print(handle.restore("before", keep_output=True).waiting)
    if handle.is_active and not handle.wait(timeout=5.0):
        handle.stop(savepoint="end")
    watermark: datetime | None = handle.status().watermark
    replay: rl.Replay = flow.replay("store/", epoch, epoch + 1, operator="v", key="ann")
    print(flow.replay("store/", epoch, region="billing", execution="local").matches)
    if not replay.matches and replay.is_same_code:
        print([e.epoch for e in replay.epochs], replay.changes, replay.key_rows)
    print(status.epoch, status.lag_rows, status.error, named, watermark)
    print(replay.saw_nothing, rl.__version__)


def stored() -> None:
    store = rl.open("store/")
    print(store.flow, store.epochs(), [s.epoch for s in store.snapshots()])
    rows = store.state("v", "spent", at="newest")
    print(rows, store.timers("v"), store.at(5).epoch)
    # PyArrow, whose table it is, ships no types.
    print(store.sql("SELECT * FROM v"))  # pyright: ignore[reportUnknownMemberType, reportUnknownArgumentType]
    with rl.stores.lease("store/@5", lasts=rl.minutes(1)) as lease:
        print(lease)
    rl.stores.savepoint("store/@5", "good", note="before the release")
    rl.stores.drop_savepoint("store/", "good")
    parts = rl.stores.savepoint_all(["a/", "b/"], "all", protocol="drain", note="n")
    print([part.regions for part in parts])
    print([reader.first for reader in rl.stores.readers("a/")])
    print(rl.stores.forget_reader("a/", "billing"))
    print(rl.stores.diff("store/@5", "store/@6", operator="v"))
    print(rl.stores.explain("store/"), rl.stores.touches("store/", "v", "ann"))
    print(rl.stores.fork("store/@5", "new/"), rl.stores.forks("store/"))
    rl.stores.forget_fork("store/", "new")
    print(rl.stores.restore("store/@5", dry_run=True))
    print(rl.stores.restore_all("store/@good", dry_run=True).is_done)
    print(rl.stores.restore("store/@good", region="billing", dry_run=True).epoch)
    print(rl.stores.explain("store/@good", region="billing").legs)
    print(rl.stores.expire_all("store/", epochs=5)["billing"].epochs)
    at_once = rl.open("store/").at("good")
    print(at_once.channels, at_once.in_flight("to-billing"))
    print(rl.stores.expire("store/", epochs=5), rl.stores.repair("store/"))
    print(rl.stores.repair_all("store/", dry_run=True).why["billing"])
    print(rl.stores.verify("store/"))


def failing(flow: rl.Flow) -> str:
    try:
        flow.run("store/")
    except rl.errors.UserCodeError as error:
        return f"{error.operator} {error.line} {error.record} {error.epoch}"
    except rl.errors.FencedError as error:
        return error.owner
    except rl.RiverlockError as error:
        code: str = error.code
        return f"{code}: {error.message}; {error.hint} ({error.exit_code})"
    return ""
