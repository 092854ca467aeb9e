"""Logic of the queries that no built-in operator has: state, time, and a few lines."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import riverlock as rl

PERIOD = rl.seconds(10)
LAST_AUCTIONS = 10
STATES = ("OR", "ID", "CA")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass
class Seller:
    name: str
    city: str
    state: str


class Suggestions(rl.TwoInputProcess):
    """Query 3. Auctions (left) meet their seller (right), whoever comes first."""

    output = "name string, city string, state string, auction bigint"
    seller = rl.Value(Seller)
    waiting = rl.List("bigint")

    def on_left(self, auction: Any, ctx: rl.Context) -> Iterator[Any]:
        if self.seller is None:
            self.waiting.append(auction.auction)
        else:
            yield from self._local(auction.auction)

    def on_right(self, person: Any, ctx: rl.Context) -> Iterator[Any]:
        self.seller = Seller(person.name, person.city, person.state)
        for auction in self.waiting:
            yield from self._local(auction)
        self.waiting.clear()

    def _local(self, auction: int) -> Iterator[Any]:
        seller = self.seller
        if seller.state in STATES:
            yield seller.name, seller.city, seller.state, auction


@dataclass
class Offer:
    seller: int
    category: int
    opens: datetime
    closes: datetime


class Winners(rl.TwoInputProcess):
    """Queries 4 and 6. The best bid (left) of each auction (right), when it closes."""

    output = (
        "auction bigint, seller bigint, category bigint, price bigint, at timestamp"
    )
    offer = rl.Value(Offer)
    best = rl.Value("bigint")
    # Bids that came before the auction did: it may still have opened before them.
    early = rl.Map("timestamp", "bigint")

    def on_left(self, bid: Any, ctx: rl.Context) -> None:
        if self.offer is not None:
            self._take(bid.at, bid.price)
        elif ctx.watermark is None or bid.at > ctx.watermark:
            self.early[bid.at] = max(bid.price, self.early.get(bid.at, 0))
            ctx.set_timer(bid.at)

    def on_right(self, auction: Any, ctx: rl.Context) -> None:
        opens, closes = auction.at, auction.expires
        self.offer = Offer(auction.seller, auction.category, opens, closes)
        ctx.set_timer(closes)
        for at, price in self.early.items():
            self._take(at, price)

    def _take(self, at: datetime, price: int) -> None:
        if self.offer.opens <= at <= self.offer.closes:
            self.best = price if self.best is None else max(price, self.best)

    def on_timer(self, at: datetime, ctx: rl.Context) -> Iterator[Any]:
        self.early.pop(at, None)
        if self.offer is not None and at == self.offer.closes:
            if self.best is not None:
                offer = self.offer
                yield ctx.key, offer.seller, offer.category, self.best, at
            del self.offer, self.best


class LastAverage(rl.Process):
    """Query 6. The average price of a seller's last ten auctions, as each closes."""

    output = "seller bigint, at timestamp, price double"
    last = rl.Value("array<bigint>", default=[])
    # By when they closed: several auctions of a seller may come out of order.
    closed = rl.Map("timestamp", "array<bigint>")

    def on_event(self, winner: Any, ctx: rl.Context) -> None:
        self.closed[winner.at] = [*self.closed.get(winner.at, []), winner.price]
        ctx.set_timer(winner.at)

    def on_timer(self, at: datetime, ctx: rl.Context) -> Iterator[Any]:
        for price in sorted(self.closed.pop(at)):
            self.last = [*self.last, price][-LAST_AUCTIONS:]
            yield ctx.key, at, sum(self.last) / len(self.last)


class CountPerPeriod(rl.Process):
    """Query 12. Counts by the clock: one row per key and epoch, the count so far."""

    output = "bidder bigint, starts timestamp, ends timestamp, bids bigint"
    starts = rl.Value("timestamp")
    bids = rl.Value("bigint", default=0)

    def on_event(self, bid: Any, ctx: rl.Context) -> None:
        starts = ctx.now - (ctx.now - _EPOCH) % PERIOD
        if self.starts != starts:
            self.starts, self.bids = starts, 0
        self.bids += 1
        # Due at once: after the last record that this key has in the epoch.
        ctx.set_timer(ctx.now, processing=True)

    def on_timer(self, at: datetime, ctx: rl.Context) -> Iterator[Any]:
        yield ctx.key, self.starts, self.starts + PERIOD, self.bids
