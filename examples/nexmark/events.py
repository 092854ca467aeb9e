"""The auction house of the Nexmark benchmark: each event is a function of its number.

Of every 50 events one is a new person, three are new auctions, 46 are bids. Half of the
bids go to a hot auction, three quarters of them come from a hot bidder, and three
quarters of the auctions are of a hot seller; who is hot changes all the time. Others
are chosen among the newest auctions and people, or a little ahead of them: some bids
are for an auction that is not there yet.

All of it is SQL over the number of the event, so that Spark makes the events as fast as
it reads them, and that a flow and an independent check get the same ones.
"""

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

import riverlock as rl

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

AUCTIONS, BIDS = 3, 46
ROUND = 1 + AUCTIONS + BIDS  # events: a person, then auctions, then bids
START_US = 1_767_225_600_000_000  # 2026-01-01
FIRST_ID = 1000
FIRST_CATEGORY, CATEGORIES = 10, 5
# Who takes part: the newest auctions and people, and a few that are yet to come.
OPEN_AUCTIONS, ACTIVE_PEOPLE, AHEAD = 100, 1000, 10
# One of so many in a row is hot.
HOT_EVERY = 100
CHANNELS = 10_000

_FIRST = ["Ada", "Alan", "Barbara", "Edsger", "Grace", "Jim", "Leslie", "Nancy"]
_LAST = ["Dijkstra", "Gray", "Hopper", "Kay", "Lamport", "Liskov", "Lovelace", "Lynch"]
_CITIES = ["Bend", "Boise", "Cheyenne", "Kent", "Phoenix", "Portland", "Seattle"]
_STATES = ["AZ", "CA", "ID", "OR", "WA", "WY"]
_SITES = ["Google", "Facebook", "Baidu", "Apple"]


@dataclass(frozen=True, kw_only=True)
class Events:
    """How many events there are, and of what kind.

    Attributes:
        count: How many.
        per_second: How many happen in a second of event time.
        seed: Another one gives other people, auctions and bids.
        shuffled: Events come out of order within groups of so many.
    """

    count: int
    per_second: int = 10_000
    seed: int = 1
    shuffled: int = 1

    @property
    def delay(self) -> timedelta:
        """How late an event may come."""
        return self.span(self.shuffled)

    def span(self, events: int) -> timedelta:
        """Return the event time that so many events take."""
        return timedelta(microseconds=events * 1_000_000 // self.per_second)

    @property
    def open(self) -> timedelta:
        """How long an auction is bid for, at most."""
        return self.span((OPEN_AUCTIONS // AUCTIONS + 2) * ROUND)

    @property
    def active(self) -> timedelta:
        """How long somebody bids and sells, at most."""
        return self.span((ACTIVE_PEOPLE + 1) * ROUND)

    @property
    def ahead(self) -> timedelta:
        """How long before they appear people and auctions may be named."""
        return self.span((AHEAD + 2) * ROUND)

    @property
    def columns(self) -> dict[str, str]:
        """What all events have, by their place in the input, ``id``."""
        # 953 is a prime: each number of a group comes up once.
        group = self.shuffled
        number = f"(id - id % {group} + (id * 953) % {group})"
        micros = f"{START_US} + {number} * 1000000 div {self.per_second}"
        return {
            "place": "id",
            "number": number,
            "round": f"{number} div {ROUND}",
            "step": f"cast({number} % {ROUND} as int)",
            "at": f"timestamp_micros({micros})",
        }

    @property
    def person(self) -> dict[str, str]:
        return {
            "id": f"{FIRST_ID} + round",
            "name": f"concat({self._one_of(_FIRST, 1)}, ' ', {self._one_of(_LAST, 2)})",
            "email": f"concat({self._letters(3, 7)}, '@example.com')",
            "card": f"lpad({self._below(10**16, 5)}, 16, '0')",
            "city": self._one_of(_CITIES, 6),
            "state": self._one_of(_STATES, 7),
            "at": "at",
            "extra": self._letters(8, 120),
        }

    @property
    def auction(self) -> dict[str, str]:
        longest = self.span(2 * OPEN_AUCTIONS * ROUND // AUCTIONS)
        lasts = f"1000 + {self._below(longest // timedelta(microseconds=1), 16)}"
        return {
            "id": f"{FIRST_ID} + round * {AUCTIONS} + step - 1",
            "item": self._letters(11, 20),
            "description": self._letters(12, 100),
            "initial": self._price(13),
            "reserve": f"{self._price(13)} + {self._price(14)}",
            "at": "at",
            "expires": f"timestamp_micros(unix_micros(at) + {lasts})",
            "seller": self._who(hot=0, draw=17),
            "category": f"{FIRST_CATEGORY} + {self._below(CATEGORIES, 20)}",
            "extra": self._letters(21, 330),
        }

    @property
    def bid(self) -> dict[str, str]:
        newest = f"(round * {AUCTIONS} + {AUCTIONS - 1})"
        oldest = f"greatest({newest} - {OPEN_AUCTIONS}, 0)"
        hot = f"{newest} div {HOT_EVERY} * {HOT_EVERY}"
        choice = f"{newest} - {oldest} + 1 + {AHEAD}"
        other = f"{oldest} + {self._below(choice, 32)}"
        site = f"{self._below(2, 35)} = 0"
        number = self._below(CHANNELS, 36)
        folder = f"if({site}, {self._below(len(_SITES), 37)}, {number})"
        return {
            "auction": f"{FIRST_ID} + if({self._below(2, 31)} > 0, {hot}, {other})",
            "bidder": self._who(hot=1, draw=33),
            "price": self._price(38),
            "channel": f"if({site}, {self._one_of(_SITES, 37)},"
            f" concat('channel-', {number}))",
            "url": f"concat('https://www.nexmark.com/', {_folders(folder)},"
            f" '/item.htm?query=1', if({site} or {number} % 10 = 0, '',"
            f" concat('&channel_id=', {number})))",
            "at": "at",
            "extra": self._letters(39, 68),
        }

    def _draw(self, draw: int) -> str:
        """Return a random number of the event; another for every draw."""
        return f"xxhash64(number, {self.seed}, {draw})"

    def _below(self, limit: int | str, draw: int) -> str:
        return f"pmod({self._draw(draw)}, {limit})"

    def _one_of(self, words: list[str], draw: int) -> str:
        listed = ", ".join(f"'{w}'" for w in words)
        return f"array({listed})[cast({self._below(len(words), draw)} as int)]"

    def _letters(self, draw: int, length: int) -> str:
        text = f"lower(hex({self._draw(draw)}))"
        return f"rpad({text}, {length}, {text})"

    def _price(self, draw: int) -> str:
        """Return cents: as many prices below 10 as between 10 and 100, and so on."""
        exponent = f"{self._below(2**40, draw)} / {2**40}D * 6"
        return f"cast(round(pow(10, {exponent}) * 100) as bigint)"

    def _who(self, *, hot: int, draw: int) -> str:
        """Return a person: three times of four the hot one, else somebody active."""
        current = f"round div {HOT_EVERY} * {HOT_EVERY} + {hot}"
        active = f"least(round + 1, {ACTIVE_PEOPLE})"
        somebody = f"round + 1 - {active} + {self._below(f'{active} + {AHEAD}', draw)}"
        is_hot = f"{self._below(4, draw + 1)} > 0"
        return f"{FIRST_ID} + if({is_hot}, {current}, {somebody})"


def _folders(number: str) -> str:
    """Return a path of three folders that depends on a number."""
    parts = (f"left(lower(hex(xxhash64({number}, {n}))), 5)" for n in range(3))
    return "concat_ws('/', {}, {}, {})".format(*parts)


# Which events are of a kind.
KINDS = {
    "person": "step = 0",
    "auction": f"step between 1 and {AUCTIONS}",
    "bid": f"step > {AUCTIONS}",
}


def stream_of(events: Events, flow: rl.Flow) -> rl.Stream:
    """Read all events, with their times; once per flow."""
    source = rl.sources.generator(events.columns, rows=events.count, bounded=True)
    return flow.read(source, uid="events").event_time("at", delay=events.delay)


def only(events: Events, kind: str, stream: rl.Stream) -> rl.Stream:
    """Return the events of a kind: person, auction or bid."""
    columns = getattr(events, kind).items()
    return stream.where(KINDS[kind]).select(*(f"{sql} as {n}" for n, sql in columns))


def make_tables(events: Events, spark: "SparkSession") -> None:
    """Make the same events tables of plain Spark: person, auction and bid.

    They have one more column, ``place``: the order in which events come.
    """
    rows = spark.range(events.count)
    base = rows.selectExpr(*(f"{sql} as {n}" for n, sql in events.columns.items()))
    for kind, condition in KINDS.items():
        columns = {**getattr(events, kind), "place": "place"}.items()
        chosen = base.where(condition)
        table = chosen.selectExpr(*(f"{sql} as {n}" for n, sql in columns))
        table.createOrReplaceTempView(kind)
