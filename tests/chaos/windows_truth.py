"""What the flow of windows should have left, computed in plain Python over all rows.

No epochs, no watermark that moves, nothing of Riverlock: tables are read with their
own client and files with ``json``. Only the state is read as a user would read it.
"""

from __future__ import annotations

import json
import re
import sqlite3
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from tests.chaos.oracle import Verdict
from tests.chaos.windows_flow import (
    BUYERS,
    DELAY_US,
    LATE_FROM,
    LATE_US,
    SECOND_US,
    SLOW_US,
    START_US,
    STEP_US,
)

import riverlock as rl

TABLES = {
    "tumbling": "buyer, window_start, window_end, n, total",
    "sliding": "buyer, window_start, window_end, n, largest",
    "sessions": "buyer, window_start, window_end, n, total",
    "paid": "order_id, payment_id",
    "pairs": "order_id, payment_id, window_start, window_end",
}
_GAP_US, _WITHIN_US, _PAIRED_US = 4 * SECOND_US, 5 * SECOND_US, 5 * SECOND_US
_TUMBLING_US, _LATENESS_US = 20 * SECOND_US, 600 * SECOND_US
_SLIDING_US, _SLIDE_US = 20 * SECOND_US, 10 * SECOND_US
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

Tables = dict[str, Counter[Any]]
Session = tuple[int, int, int, int, int]


@dataclass(frozen=True)
class Order:
    """A row of the input, of either kind; the same arithmetic as the flow's."""

    number: int
    buyer: int
    amount: int
    at_us: int
    is_slow: bool
    is_late: bool


def _order(n: int) -> Order:
    is_slow, is_late = n % 101 == 3, n >= LATE_FROM and n % 211 == 7
    at_us = START_US + n * STEP_US - n * 104_729 % 29 * STEP_US
    return Order(
        number=n,
        buyer=(n * n % 1_000_003 * 31 + n) % BUYERS,
        amount=(n * 7_919 + 5) % 1_009,
        at_us=at_us - SLOW_US * is_slow - LATE_US * is_late,
        is_slow=is_slow,
        is_late=is_late,
    )


def _payment(n: int) -> Order:
    is_late = n >= LATE_FROM and n % 223 == 9
    at_us = START_US + n * STEP_US - n * 99_991 % 23 * STEP_US
    return Order(
        number=n,
        buyer=(n * n % 999_983 * 17 + n) % BUYERS,
        amount=(n * 6_151 + 3) % 2_003,
        at_us=at_us - LATE_US * is_late,
        is_slow=False,
        is_late=is_late,
    )


class Truth:
    """Everything that follows from the number of rows."""

    def __init__(self, rows: int) -> None:
        self.orders = [_order(n) for n in range(rows)]
        self.payments = [_payment(n) for n in range(rows)]
        self.prompt = [o for o in self.orders if not (o.is_slow or o.is_late)]
        self.paid_in_time = [p for p in self.payments if not p.is_late]
        # The instant after the last one that is over.
        self.over_us = _over(self.orders)
        self.both_over_us = min(self.over_us, _over(self.payments))

    def tables(self) -> Tables:
        found: Tables = {name: Counter() for name in TABLES}
        for buyer, end, n, total, _ in self._tumbling():
            found["tumbling"][buyer, end - _TUMBLING_US, end, n, total] += 1
        for buyer, end, n, largest in self._sliding():
            if end <= self.over_us:
                found["sliding"][buyer, end - _SLIDING_US, end, n, largest] += 1
        found["sessions"].update(self._sessions())
        found["paid"].update(self._paid())
        for order, payment in self._close(-_PAIRED_US):
            end = _end(order.at_us, _PAIRED_US)
            if end == _end(payment.at_us, _PAIRED_US) and end <= self.both_over_us:
                row = order.number, payment.number, end - _PAIRED_US, end
                found["pairs"][row] += 1
        return found

    def files(self) -> Tables:
        orders = {("left", o.number) for o in self.orders if o.is_late}
        payments = {("right", p.number) for p in self.payments if p.is_late}
        # What is slow does not reach the joins.
        late = {("left", o.number) for o in self.orders if o.is_late and not o.is_slow}
        broken = (o for o in self.orders if not o.is_slow and _is_broken(o))
        return {
            "broken": Counter(o.number for o in broken),
            "late-tumbling": Counter(orders),
            "late-paid": Counter(late | payments),
            "late-pairs": Counter(late | payments),
        }

    def state(self) -> Tables:
        pane = Counter[tuple[int, int]]()
        for order in self.prompt:
            pane[order.buyer, _end(order.at_us, _SLIDE_US)] += 1
        last = _SLIDING_US - _SLIDE_US
        mark = self.both_over_us
        return {
            "state: tumbling": Counter(
                (buyer, end, n, total)
                for buyer, end, n, total, _ in self._tumbling()
                if end + _LATENESS_US > self.over_us
            ),
            "state: sliding": Counter(
                (buyer, end, n)
                for (buyer, end), n in pane.items()
                if end + last > self.over_us
            ),
            "state: sessions": Counter(
                row for row in self._sessions() if row[2] > self.over_us
            ),
            "state: paid": Counter(
                [
                    ("left", o.number)
                    for o in self.prompt
                    if o.at_us + _WITHIN_US >= mark
                ]
                + [("right", p.number) for p in self.paid_in_time if p.at_us >= mark]
            ),
            "state: pairs": Counter(
                (side, o.number)
                for side, rows in (("left", self.prompt), ("right", self.paid_in_time))
                for o in rows
                if _end(o.at_us, _PAIRED_US) > mark
            ),
        }

    def _tumbling(self) -> Iterator[tuple[int, ...]]:
        windows: dict[tuple[int, int], list[Order]] = defaultdict(list)
        for order in self.orders:
            if not order.is_late:
                windows[order.buyer, _end(order.at_us, _TUMBLING_US)].append(order)
        for (buyer, end), rows in windows.items():
            amounts = [o.amount for o in rows]
            yield buyer, end, len(rows), sum(amounts), max(amounts)

    def _sliding(self) -> Iterator[tuple[int, int, int, int]]:
        windows: dict[tuple[int, int], list[int]] = defaultdict(list)
        for order in self.prompt:
            first = _end(order.at_us, _SLIDE_US)
            for end in range(first, first + _SLIDING_US, _SLIDE_US):
                windows[order.buyer, end].append(order.amount)
        for (buyer, end), amounts in windows.items():
            yield buyer, end, len(amounts), max(amounts)

    def _sessions(self) -> Iterator[Session]:
        good = (o for o in self.prompt if not _is_broken(o))
        for buyer, orders in _by_buyer(good).items():
            session: list[Order] = []
            for order in orders:
                if session and order.at_us > session[-1].at_us + _GAP_US:
                    yield _session(buyer, session)
                    session = []
                session.append(order)
            yield _session(buyer, session)

    def _paid(self) -> Iterator[tuple[int, int | None]]:
        paid = set()
        for order, payment in self._close(0):
            paid.add(order.number)
            yield order.number, payment.number
        for order in self.prompt:
            is_sure = order.at_us + _WITHIN_US < self.both_over_us
            if is_sure and order.number not in paid:
                yield order.number, None

    def _close(self, least_us: int) -> Iterator[tuple[Order, Order]]:
        """Pairs of a buyer; the payment is up to five seconds behind the order."""
        payments = _by_buyer(self.paid_in_time)
        for buyer, orders in _by_buyer(self.prompt).items():
            mine, first = payments.get(buyer, []), 0
            for order in orders:
                while first < len(mine) and mine[first].at_us < order.at_us + least_us:
                    first += 1
                for payment in mine[first:]:
                    if payment.at_us > order.at_us + _WITHIN_US:
                        break
                    yield order, payment


def _is_broken(order: Order) -> bool:
    return order.number % 307 == 11


def _over(rows: Iterable[Order]) -> int:
    return max(row.at_us for row in rows) - DELAY_US


def _end(at_us: int, size_us: int) -> int:
    return at_us // size_us * size_us + size_us


def _by_buyer(rows: Iterable[Order]) -> dict[int, list[Order]]:
    found: dict[int, list[Order]] = defaultdict(list)
    for row in sorted(rows, key=lambda r: r.at_us):
        found[row.buyer].append(row)
    return found


def _session(buyer: int, rows: list[Order]) -> Session:
    end = rows[-1].at_us + _GAP_US
    return buyer, rows[0].at_us, end, len(rows), sum(o.amount for o in rows)


def read_tables(url: str) -> Tables:
    """Read the tables as any client does."""
    return {
        name: Counter(tuple(map(_plain, row)) for row in _query(url, name, columns))
        for name, columns in TABLES.items()
    }


def _query(url: str, table: str, columns: str) -> list[Any]:
    query = f"select {columns} from {table}"
    if url.startswith("sqlite:///"):
        with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as database:
            return database.execute(query).fetchall()
    import psycopg

    with psycopg.connect(url) as server:
        return server.execute(query.encode()).fetchall()


def _plain(value: Any) -> Any:
    """Return an instant in microseconds, and anything else as it is."""
    if isinstance(value, str):
        value = datetime.fromisoformat(value)
    if isinstance(value, datetime):
        return (value - _EPOCH) // timedelta(microseconds=1)
    return value


def read_files(out: Path) -> Tables:
    """Read the files of late rows and dead letters."""
    found: Tables = {}
    for name in ("broken", "late-tumbling", "late-paid", "late-pairs"):
        rows = (
            json.loads(line)
            for path in (out / name).glob("epoch=*/*")
            for line in path.read_text().splitlines()
        )
        found[name] = Counter(map(_named, rows))
    return found


def _named(row: dict[str, Any]) -> Any:
    if "error" in row:
        found = re.search(r"order (\d+) is broken", row["error"])
        assert found is not None, row
        return int(found[1])
    side = row.get("side", "left")
    record = row.get(side, row)
    return side, record["order_id" if side == "left" else "payment_id"]


def read_state(store: Path) -> Tables:
    """Read the state of the newest epoch."""
    newest = rl.open(str(store)).at(None)

    def rows(operator: str) -> Iterator[dict[str, Any]]:
        for row in newest.state(operator):
            yield {name: _plain(value) for name, value in row.items()}

    return {
        "state: tumbling": Counter(
            (r["buyer"], r["window_end"], r["n"], r["total"]) for r in rows("tumbling")
        ),
        "state: sliding": Counter(
            (r["buyer"], r["pane_end"], r["n"]) for r in rows("sliding")
        ),
        "state: sessions": Counter(
            (r["buyer"], _plain(s["begin"]), _plain(s["end"]), s["of_n"], s["of_total"])
            for r in rows("sessions")
            for s in r["sessions"]
        ),
        "state: paid": Counter(
            (side, record["row"][name])
            for r in rows("paid")
            for side, name in (("left", "order_id"), ("right", "payment_id"))
            for records in r[f"{side}_rows"].values()
            for record in records
        ),
        "state: pairs": Counter(
            (side, record[name])
            for r in rows("pairs")
            for side, name in (("left", "order_id"), ("right", "payment_id"))
            for records in r[f"{side}_rows"].values()
            for record in records
        ),
    }


def compare(store: Path, out: Path, url: str, rows: int) -> Verdict:
    """Compare tables, files and state with what is right."""
    truth = Truth(rows)
    expected = truth.tables() | truth.files() | truth.state()
    found = read_tables(url) | read_files(out) | read_state(store)
    lost = {name: expected[name] - found[name] for name in expected}
    more = {name: found[name] - expected[name] for name in expected}
    details = tuple(
        f"{name}: {rows.total()} expected, {found[name].total()} found,"
        f" lost {lost[name].total()} {_some(lost[name])},"
        f" duplicated {more[name].total()} {_some(more[name])}"
        for name, rows in expected.items()
    )
    return Verdict(
        epochs=rl.open(str(store)).epochs()[-1] + 1,
        rows=sum(rows.total() for rows in expected.values()),
        lost=sum(rows.total() for rows in lost.values()),
        duplicated=sum(rows.total() for rows in more.values()),
        details=details,
    )


def _some(rows: Counter[Any]) -> str:
    return ", ".join(map(str, list(rows)[:3]))
