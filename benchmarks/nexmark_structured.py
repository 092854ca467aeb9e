"""The Nexmark queries that Structured Streaming can express, as its users write them.

It has no average over maxima without windows (4), no frames over rows (6), no distinct
counts (15, 16) and no rankings (19).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from examples.nexmark.events import KINDS, Events
from examples.nexmark.queries import side_input

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import timedelta

    from pyspark.sql import DataFrame


class Tables(NamedTuple):
    """The streams that queries read, with watermarks, and how far apart they are."""

    events: Events
    person: DataFrame
    auction: DataFrame
    bid: DataFrame


def tables(events: Events, numbers: DataFrame) -> Tables:
    """Make the streams from the numbers of the events, a column ``id``."""
    columns = (f"{sql} as {name}" for name, sql in events.columns.items())
    micros = _micros(events.delay)
    base = numbers.selectExpr(*columns).withWatermark("at", f"{micros} microseconds")
    made = {
        kind: base.where(condition).selectExpr(
            *(f"{sql} as {name}" for name, sql in getattr(events, kind).items())
        )
        for kind, condition in KINDS.items()
    }
    return Tables(events, **made)


def _micros(span: timedelta) -> int:
    return round(span.total_seconds() * 1_000_000)


def _q3(t: Tables) -> DataFrame:
    auctions = t.auction.where("category = 10").selectExpr("seller", "id as auction")
    persons = t.person.where("state in ('OR', 'ID', 'CA')")
    joined = auctions.join(persons, auctions.seller == persons.id)
    return joined.select("name", "city", "state", "auction")


def _q5(t: Tables) -> DataFrame:
    from pyspark.sql import functions as F

    window = F.window("at", "10 seconds", "2 seconds")
    counts = t.bid.groupBy("auction", window).count()
    counts = counts.selectExpr("*", "window_time(window) as ends")
    rivals = counts.groupBy(F.window("ends", "2 seconds")).agg(
        F.max("count").alias("most"),
        F.collect_list(F.struct("auction", "count")).alias("all"),
    )
    return rivals.selectExpr("most", "filter(all, a -> a.count = most) as hot")


def _q7(t: Tables) -> DataFrame:
    from pyspark.sql import functions as F

    highest = t.bid.groupBy(F.window("at", "10 seconds")).agg(
        F.max("price").alias("highest")
    )
    highest = highest.selectExpr("highest", "window_time(window) as ends")
    bids = t.bid.select("price", "auction", "bidder", "at")
    condition = "price = highest and at > ends - interval 10 seconds and at <= ends"
    return bids.join(highest, F.expr(condition))


def _q8(t: Tables) -> DataFrame:
    from pyspark.sql import functions as F

    persons = t.person.select("id", "name", F.window("at", "10 seconds").alias("p"))
    auctions = t.auction.select("seller", F.window("at", "10 seconds").alias("a"))
    return persons.join(auctions, F.expr("id = seller and p = a"), "leftsemi")


def _q11(t: Tables) -> DataFrame:
    from pyspark.sql import functions as F

    return t.bid.groupBy("bidder", F.session_window("at", "10 seconds")).count()


def _q12(t: Tables) -> DataFrame:
    from pyspark.sql import functions as F

    bids = t.bid.select("bidder", F.current_timestamp().alias("now"))
    return bids.groupBy("bidder", F.window("now", "10 seconds")).count()


def _q13(t: Tables) -> DataFrame:
    side = side_input(t.bid.sparkSession)
    bids = t.bid.selectExpr("auction", "bidder", "price", "at", "auction % 10000 as k")
    return bids.join(side, bids.k == side.key)


def _q17(t: Tables) -> DataFrame:
    from pyspark.sql import functions as F

    return t.bid.groupBy("auction", F.date_format("at", "yyyy-MM-dd")).agg(
        F.expr("count(*)"),
        F.expr("count_if(price < 10000)"),
        F.expr("count_if(price >= 10000 and price < 1000000)"),
        F.expr("count_if(price >= 1000000)"),
        F.min("price"),
        F.max("price"),
        F.avg("price"),
        F.sum("price"),
    )


def _q18(t: Tables) -> DataFrame:
    from pyspark.sql import functions as F

    last = F.expr("max_by(struct(price, channel, url, at, extra), at)")
    return t.bid.groupBy("bidder", "auction").agg(last)


def _q20(t: Tables) -> DataFrame:
    from pyspark.sql import functions as F

    auctions = t.auction.where("category = 10").selectExpr(
        *("id", "item", "description", "initial", "reserve", "at as opened"),
        *("expires", "seller", "category", "extra as auction_extra"),
    )
    near = _near("opened", "at", t.events.open, t.events.ahead)
    return t.bid.join(auctions, F.expr(f"auction = id and {near}"))


def _q23(t: Tables) -> DataFrame:
    from pyspark.sql import functions as F

    persons = t.person.selectExpr("id", "name", "email", "city", "state", "at as came")
    bids = t.bid.selectExpr("bidder", "price", "channel", "at as bid_at")
    auctions = t.auction.selectExpr("seller", "id as sells", "item", "at as opened")
    near = _near("came", "bid_at", t.events.active, t.events.ahead)
    # Of two event times in one stream Spark does not know which to take.
    people = bids.join(persons, F.expr(f"bidder = id and {near}")).drop("came")
    longest = t.events.active + t.events.ahead
    near = _near("opened", "bid_at", longest, longest)
    return people.join(auctions, F.expr(f"bidder = seller and {near}"))


def _near(column: str, other: str, before: timedelta, after: timedelta) -> str:
    earliest, latest = (f"interval {_micros(s)} microseconds" for s in (before, after))
    return f"{column} between {other} - {earliest} and {other} + {latest}"


# Each with the mode in which it is written.
QUERIES: dict[str, tuple[Callable[[Tables], DataFrame], str]] = {
    "q0": (lambda t: t.bid, "append"),
    "q1": (lambda t: t.bid.selectExpr("price * 0.908", "* except (price)"), "append"),
    "q2": (lambda t: t.bid.where("auction % 123 = 0").select("price"), "append"),
    "q3": (_q3, "append"),
    "q5": (_q5, "append"),
    "q7": (_q7, "append"),
    "q8": (_q8, "append"),
    "q11": (_q11, "append"),
    "q12": (_q12, "update"),
    "q13": (_q13, "append"),
    "q17": (_q17, "update"),
    "q18": (_q18, "update"),
    "q20": (_q20, "append"),
    "q22": (lambda t: t.bid.selectExpr("split(url, '/')[3]"), "append"),
    "q23": (_q23, "append"),
}
