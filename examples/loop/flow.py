"""A loop: payments that the bank declines are tried again, after ever longer waits.

``charge`` asks the bank, account by account. What it declines goes to ``wait``, which
keeps each payment until its time has come and feeds it back; after the last try it
gives up. A payment comes round as often as the bank says no.

    python -m examples.loop.flow --store store/loop --out out/loop
"""

import argparse
from datetime import UTC, datetime, timedelta
from hashlib import blake2b
from typing import Any

import riverlock as rl

PAYMENT = "payment long, account string, cents long, attempt int, at timestamp"
START = datetime(2026, 1, 1, tzinfo=UTC)
MOST_ATTEMPTS = 5
ACCOUNTS = 50


def payment(number: int) -> tuple[int, str, int, int, datetime]:
    """Return a payment as it first comes in: made from its number."""
    account, cents = f"a{number * 7919 % ACCOUNTS}", 100 + number * 31 % 900
    return number, account, cents, 1, START + timedelta(seconds=number)


def is_declined(number: int, attempt: int) -> bool:
    """Say what the bank says: it declines about every other attempt."""
    dice = blake2b(f"{number}/{attempt}".encode(), digest_size=1).digest()
    return dice[0] % 2 == 0


def delay(attempt: int) -> timedelta:
    """Return how long a payment waits after an attempt: twice as long each time."""
    return timedelta(minutes=2**attempt)


class Charge(rl.Process):
    """Asks the bank, and counts what it costs to ask."""

    output = PAYMENT
    attempts = rl.Value("long", default=0)
    charged = rl.Value("long", default=0)
    declined = rl.SideOutput(PAYMENT)

    def on_event(self, p: Any, ctx: rl.Context) -> Any:
        self.attempts += 1
        row = (p.payment, p.account, p.cents, p.attempt, p.at)
        if is_declined(p.payment, p.attempt):
            ctx.emit(self.declined, row)
        else:
            self.charged += p.cents
            yield row


class Wait(rl.Process):
    """Keeps a declined payment until it is due again, or gives up."""

    output = PAYMENT
    account = rl.Value("string")
    cents = rl.Value("long")
    attempt = rl.Value("int")
    given_up = rl.SideOutput(PAYMENT)

    def on_event(self, p: Any, ctx: rl.Context) -> None:
        if p.attempt == MOST_ATTEMPTS:
            row = (p.payment, p.account, p.cents, p.attempt, p.at)
            ctx.emit(self.given_up, row)
            return
        self.account, self.cents, self.attempt = p.account, p.cents, p.attempt
        ctx.set_timer(p.at + delay(p.attempt))

    def on_timer(self, at: datetime, ctx: rl.Context) -> Any:
        yield ctx.key, self.account, self.cents, self.attempt + 1, at
        del self.account, self.cents, self.attempt


def build(payments: int, paid: Any, given_up: Any) -> rl.Flow:
    """Return the flow over so many payments."""
    flow = rl.Flow("retries", key_groups=16)
    numbers = flow.read(
        rl.sources.generator({"number": "id"}, rows=payments, bounded=True),
        uid="numbers",
    )
    new = numbers.map(lambda row: payment(row.number), PAYMENT, uid="payments")
    again = flow.loop(PAYMENT, uid="again", max_rounds=10 * MOST_ATTEMPTS)
    due = new.event_time("at", uid="time").union(again.event_time("at", uid="again-at"))
    charged = due.key_by("account").process(Charge(), uid="charge")
    waited = charged.side("declined").key_by("payment").process(Wait(), uid="wait")
    waited.feed(again)
    charged.write(paid, uid="paid")
    waited.side("given_up").write(given_up, uid="given-up")
    return flow


def main() -> None:
    """Run until all payments are settled."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--store", default="store/loop")
    parser.add_argument("--out", default="out/loop")
    parser.add_argument("--payments", type=int, default=2_000)
    given = parser.parse_args()
    flow = build(
        given.payments,
        rl.sinks.files(f"{given.out}/paid", format="json"),
        rl.sinks.files(f"{given.out}/given-up", format="json"),
    )
    status = flow.run(
        given.store,
        execution="local",
        available_now=True,
        max_rows_per_epoch=max(1, given.payments // 6),
    )
    print(status)


if __name__ == "__main__":
    main()
