"""The Nexmark queries as flows: from three streams to one of results."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any

import riverlock as rl
from examples.nexmark.events import (
    Events,
    only,
    stream_of,
)
from examples.nexmark.processes import (
    PERIOD,
    CountPerPeriod,
    LastAverage,
    Suggestions,
    Winners,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

CHEAP, DEAR = 10_000, 1_000_000
_INSTANT = timedelta(microseconds=1)


class Market:
    """The streams of a flow that queries read; what several need is made once."""

    def __init__(self, flow: rl.Flow, events: Events) -> None:
        self.events = events
        stream = stream_of(events, flow)
        self.persons = only(events, "person", stream)
        self.auctions = only(events, "auction", stream)
        self.bids = only(events, "bid", stream)

    @cached_property
    def winners(self) -> rl.Stream:
        bids = self.bids.select("auction", "price", "at").key_by("auction")
        auctions = self.auctions.select("id", "seller", "category", "at", "expires")
        return bids.connect(auctions.key_by("id")).process(Winners(), uid="winners")


def q0(m: Market) -> rl.Stream:
    """Pass-through."""
    return m.bids


def q1(m: Market) -> rl.Stream:
    """Currency conversion."""
    return m.bids.select("auction", "bidder", "price * 0.908 as price", "at", "extra")


def q2(m: Market) -> rl.Stream:
    """Selection: bids for some auctions."""
    return m.bids.where("auction % 123 = 0").select("auction", "price")


def q3(m: Market) -> rl.Stream:
    """Local item suggestion: who sells in a category, in three states."""
    auctions = m.auctions.where("category = 10").select("seller", "id as auction")
    sellers = m.persons.select("id", "name", "city", "state").key_by("id")
    return auctions.key_by("seller").connect(sellers).process(Suggestions(), uid="q3")


def q4(m: Market) -> rl.Stream:
    """Average price of closed auctions, by category."""
    return m.winners.key_by("category").agg(price="avg(price)", uid="q4")


def q5(m: Market) -> rl.Stream:
    """Hot items: the auctions with most bids in the last ten seconds."""
    slide = rl.seconds(2)
    counts = m.bids.key_by("auction").window(rl.sliding(PERIOD, slide)).count(uid="q5")
    # A count happens at the end of its window: those of one window share a slide.
    rivals = counts.key_by("window_end").window(rl.tumbling(slide))
    return rivals.apply(_most, "auction bigint, bids bigint, ends timestamp", uid="q5b")


def _most(key: Any, window: Any, counts: list[Any]) -> list[tuple[Any, ...]]:
    most = max(c.count for c in counts)
    return [(c.auction, most, key) for c in counts if c.count == most]


def q6(m: Market) -> rl.Stream:
    """Average selling price of the last ten auctions of a seller."""
    return m.winners.key_by("seller").process(LastAverage(), uid="q6")


def q7(m: Market) -> rl.Stream:
    """Highest bid: all bids that have the highest price of their ten seconds."""
    highest = m.bids.window(rl.tumbling(PERIOD)).agg(price="max(price)", uid="q7")
    bids = m.bids.select("price as bid", "auction", "bidder", "at")
    # A maximum happens at the last instant of its window.
    return (
        highest.select("price", "window_end as ends")
        .key_by("price")
        .join(bids.key_by("bid"), within=(_INSTANT - PERIOD, rl.seconds(0)), uid="q7b")
    )


def q8(m: Market) -> rl.Stream:
    """Monitor new users: who became a seller in the ten seconds of their arrival."""
    persons = m.persons.select("id", "name").key_by("id")
    sellers = m.auctions.select("seller").key_by("seller")
    new = persons.join(sellers, window=rl.tumbling(PERIOD), how="semi", uid="q8")
    return new.select("id", "name", "window_start as period")


def q11(m: Market) -> rl.Stream:
    """User sessions: bids of a bidder who was never silent for ten seconds."""
    return m.bids.key_by("bidder").window(rl.sessions(PERIOD)).count(uid="q11")


def q12(m: Market) -> rl.Stream:
    """Processing-time windows: bids per bidder in ten seconds by the clock."""
    bids = m.bids.select("bidder").key_by("bidder")
    return bids.process(CountPerPeriod(), uid="q12")


def side_input(spark: "SparkSession") -> "DataFrame":
    """Return what queries look up: a table of 10,000 rows."""
    return spark.range(10_000).selectExpr("id as key", "concat('value-', id) as value")


def q13(m: Market) -> rl.Stream:
    """Bounded side input: bids joined with a table."""
    bids = m.bids.select("auction", "bidder", "price", "at", "auction % 10000 as key")
    return bids.join_static(side_input, on="key")


def q15(m: Market) -> rl.Stream:
    """Bidding statistics: counts and distinct counts per day, by rank of price."""
    return _statistics(m, "q15", "day")


def q16(m: Market) -> rl.Stream:
    """Channel statistics: the same by channel and day."""
    return _statistics(m, "q16", "channel", "day")


# What is counted: bids, bidders that are new to the day, auctions likewise.
_COUNTED = ("bids", "bidders", "auctions")
_DAY = "date_format(at, 'yyyy-MM-dd') as day"
_RANK = f"case when price < {CHEAP} then 1 when price < {DEAR} then 2 else 3 end"


def _statistics(m: Market, name: str, *group: str) -> rl.Stream:
    """Count bids, and whoever is seen for the first time, in all and by rank."""
    seen = ", ".join(
        f"named_struct('what', '{who}s', 'who', {who}, 'rank', {rank})"
        for who in ("bidder", "auction")
        for rank in ("0", _RANK)
    )
    named = m.bids.select("channel", _DAY, f"explode(array({seen})) as seen")
    named = named.select(*group, "seen.what", "seen.who", "seen.rank")
    new = named.key_by(*group, "what", "who", "rank").deduplicate(
        within="1 day", uid=f"{name}-new"
    )
    bids = m.bids.select("channel", _DAY, f"explode(array(0, {_RANK})) as rank")
    bids = bids.select(*group, "'bids' as what", "0L as who", "rank")
    counts = {
        f"{'total' if rank == 0 else f'rank{rank}'}_{what}": (
            f"count(if(what = '{what}' and rank = {rank}, 1, null))"
        )
        for what in _COUNTED
        for rank in range(4)
    }
    return bids.union(new).key_by(*group).agg(counts, uid=name)


def q17(m: Market) -> rl.Stream:
    """Auction statistics: counts and prices per auction and day."""
    bids = m.bids.select("auction", _DAY, "price", f"{_RANK} as rank")
    return bids.key_by("auction", "day").agg(
        total="count(*)",
        rank1="count(if(rank = 1, 1, null))",
        rank2="count(if(rank = 2, 1, null))",
        rank3="count(if(rank = 3, 1, null))",
        lowest="min(price)",
        highest="max(price)",
        average="avg(price)",
        sum="sum(price)",
        uid="q17",
    )


def q18(m: Market) -> rl.Stream:
    """The last bid of each bidder for each auction."""
    last = "last(struct(price, channel, url, at, extra))"
    return m.bids.key_by("bidder", "auction").agg(bid=last, uid="q18")


def q19(m: Market) -> rl.Stream:
    """The ten highest bids of each auction."""
    return m.bids.key_by("auction").top(10, by="price", uid="q19")


def q20(m: Market) -> rl.Stream:
    """Bids with all about their auction, of one category."""
    auctions = m.auctions.where("category = 10").select(
        *("id", "item", "description", "initial", "reserve", "at as opened"),
        *("expires", "seller", "category", "extra as auction_extra"),
    )
    return m.bids.key_by("auction").join(
        auctions.key_by("id"), within=(-m.events.open, m.events.ahead), uid="q20"
    )


def q22(m: Market) -> rl.Stream:
    """Parts of a URL."""
    parts = (f"split(url, '/')[{n + 2}] as dir{n}" for n in (1, 2, 3))
    return m.bids.select("auction", "bidder", "price", "channel", *parts)


def q23(m: Market) -> rl.Stream:
    """Bids of people who also sell: bid, person and auction in one row."""
    persons = m.persons.select("id", "name", "email", "city", "state")
    bids = m.bids.select("bidder", "price", "channel", "at as bid_at")
    auctions = m.auctions.select("seller", "id as sells", "item", "at as opened")
    people = bids.key_by("bidder").join(
        persons.key_by("id"), within=(-m.events.active, m.events.ahead), uid="q23"
    )
    # A pair has the later time of the two: the auction may be long before or after it.
    longest = m.events.active + m.events.ahead
    return people.key_by("bidder").join(
        auctions.key_by("seller"), within=(-longest, longest), uid="q23b"
    )


@dataclass(frozen=True)
class Query:
    """A query and how its rows are to be taken.

    Attributes:
        build: From streams to results.
        key: Columns whose newest row counts; none: every row does.
    """

    build: Callable[[Market], rl.Stream]
    key: tuple[str, ...] = ()


QUERIES = {
    "q0": Query(q0),
    "q1": Query(q1),
    "q2": Query(q2),
    "q3": Query(q3),
    "q4": Query(q4, ("category",)),
    "q5": Query(q5),
    "q6": Query(q6),
    "q7": Query(q7),
    "q8": Query(q8),
    "q11": Query(q11),
    "q12": Query(q12, ("bidder", "starts")),
    "q13": Query(q13),
    "q15": Query(q15, ("day",)),
    "q16": Query(q16, ("channel", "day")),
    "q17": Query(q17, ("auction", "day")),
    "q18": Query(q18, ("bidder", "auction")),
    "q19": Query(q19, ("auction", "rank")),
    "q20": Query(q20),
    "q22": Query(q22),
    "q23": Query(q23),
}


def build(events: Events, out: str, names: list[str] | None = None) -> rl.Flow:
    """Return a flow of queries; each writes Parquet into its own folder of ``out``."""
    flow = rl.Flow("nexmark")
    market = Market(flow, events)
    for name in names or QUERIES:
        sink = rl.sinks.files(f"{out}/{name}", format="parquet")
        QUERIES[name].build(market).write(sink, uid=f"to-{name}")
    return flow
