"""The second program that is killed at random: windows, sessions, joins, SQL tables.

Orders and payments are plain arithmetic on their number, so that ``windows_truth``
computes what is right without Spark and without Riverlock. Whatever the epochs, what
is late is late: a row is out of order by less than the delay, or by a minute (``slow``,
for the windows with lateness alone), or by an hour, which no epoch is long.

``python -m tests.chaos.windows_flow --store S --out O --url U`` exits 0 at the end of
the input.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from tests.unsynced import without_sync

import riverlock as rl

START_US = 1_700_000_000_000_000
STEP_US = 100_000
# The first epochs have no watermark yet, or next to none.
LATE_FROM = 4_000
SECOND_US = 1_000_000
SLOW_US, LATE_US = 60 * SECOND_US, 3_600 * SECOND_US
DELAY_US = 3 * SECOND_US
BUYERS = 53

ORDERS = {
    "order_id": "id",
    "buyer": f"(id * id % 1000003 * 31 + id) % {BUYERS}",
    "amount": "(id * 7919 + 5) % 1009",
    "slow": "id % 101 = 3",
    "at": f"timestamp_micros({START_US} + id * {STEP_US}"
    f" - id * 104729 % 29 * {STEP_US}"
    f" - if(id % 101 = 3, {SLOW_US}, 0)"
    f" - if(id >= {LATE_FROM} and id % 211 = 7, {LATE_US}, 0))",
}
PAYMENTS = {
    "payment_id": "id",
    "payer": f"(id * id % 999983 * 17 + id) % {BUYERS}",
    "cents": "(id * 6151 + 3) % 2003",
    "paid_at": f"timestamp_micros({START_US} + id * {STEP_US}"
    f" - id * 99991 % 23 * {STEP_US}"
    f" - if(id >= {LATE_FROM} and id % 223 = 9, {LATE_US}, 0))",
}
CHECKED = "order_id long, buyer long, amount long, at timestamp"


def checked(order: Any) -> Any:
    """Refuse one order in three hundred."""
    if order.order_id % 307 == 11:
        message = f"order {order.order_id} is broken"
        raise ValueError(message)
    return order.order_id, order.buyer, order.amount, order.at


def build(out: str, url: str, rows: int) -> rl.Flow:
    """Return the flow; ``rows`` of orders and as many payments."""
    flow = rl.Flow("windows", key_groups=16)
    orders = flow.read(rl.sources.generator(ORDERS, rows=rows), uid="orders")
    orders = orders.event_time("at", delay="3 seconds")
    source = rl.sources.generator(PAYMENTS, rows=rows)
    payments = (
        flow.read(source, uid="payments")
        .event_time("paid_at", delay="3 seconds")
        .key_by("payer")
    )
    prompt = orders.where("not slow").select("order_id", "buyer", "amount", "at")

    tumbling = (
        orders.key_by("buyer")
        .window(rl.tumbling("20 seconds"), lateness="10 minutes")
        .agg(n="count(*)", total="sum(amount)", uid="tumbling")
    )
    keys = ["buyer", "window_start"]
    table = rl.sinks.sql(url, table="tumbling", how="upsert", key=keys, create=True)
    tumbling.write(table, mode="update", uid="to-tumbling")

    sliding = (
        prompt.key_by("buyer")
        .window(rl.sliding("20 seconds", "10 seconds"))
        .agg(n="count(*)", largest="max(amount)", uid="sliding")
    )
    sliding.write(_table(url, "sliding"), uid="to-sliding")

    broken = rl.sinks.files(f"{out}/broken", format="json")
    sessions = (
        prompt.map(checked, output=CHECKED, on_error=broken)
        .event_time("at", delay="3 seconds")
        .key_by("buyer")
        .window(rl.sessions("4 seconds"))
        .agg(n="count(*)", total="sum(amount)", uid="sessions")
    )
    table = rl.sinks.sql(
        url, table="sessions", how="upsert", key=keys, deletes="gone", create=True
    )
    sessions.write(table, mode="update", uid="to-sessions")

    within = ("0 seconds", "5 seconds")
    paid = prompt.key_by("buyer").join(payments, within=within, how="left", uid="paid")
    paid.write(_table(url, "paid"), uid="to-paid")

    window = rl.tumbling("5 seconds")
    pairs = prompt.key_by("buyer").join(payments, window=window, uid="pairs")
    pairs.write(_table(url, "pairs"), uid="to-pairs")

    for name, stream in (("tumbling", tumbling), ("paid", paid), ("pairs", pairs)):
        late = rl.sinks.files(f"{out}/late-{name}", format="json")
        stream.late.write(late, uid=f"to-late-{name}")
    return flow


def _table(url: str, name: str) -> Any:
    return rl.sinks.sql(url, table=name, create=True)


def main() -> int:
    without_sync()
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("--store", "--out", "--url"):
        parser.add_argument(name, required=True)
    for name in ("--rows", "--epoch-rows", "--parallelism"):
        parser.add_argument(name, type=int, required=True)
    chosen = parser.parse_args()
    out = str(Path(chosen.out).absolute())
    build(out, chosen.url, chosen.rows).run(
        chosen.store,
        available_now=True,
        max_rows_per_epoch=chosen.epoch_rows,
        parallelism=chosen.parallelism,
        retain_epochs=5,
        grace="2 seconds",
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
