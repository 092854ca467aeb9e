"""Two regions of one flow: each has a guarantee, a pace and failures of its own.

``score`` counts payments by account. From there they go two ways: ``billing`` adds them
up into a table of a database, exactly once; ``alerts`` has the large ones, which leave
as soon as a task has them, and may come again after a crash.

    python -m examples.regions.flow --store store/regions --out out/regions
"""

import argparse
import json
from functools import partial
from pathlib import Path
from typing import Any

import riverlock as rl

PAYMENT = "payment long, account string, cents long"
ACCOUNTS = 40
LARGE = 950


def payment(number: int) -> tuple[int, str, int]:
    """Return a payment, made from its number."""
    return number, f"a{number * 7919 % ACCOUNTS}", 1 + number * 389 % 1_000


class Score(rl.Process):
    """Counts what each account pays, and lets it through."""

    output = PAYMENT
    cents = rl.Value("long", default=0)

    def on_event(self, p: Any, ctx: rl.Context) -> Any:
        self.cents += p.cents
        yield p.payment, p.account, p.cents


class Bill(rl.Process):
    """Adds up what each account owes."""

    output = "account string, payments long, cents long"
    payments = rl.Value("long", default=0)
    cents = rl.Value("long", default=0)

    def on_event(self, p: Any, ctx: rl.Context) -> Any:
        self.payments += 1
        self.cents += p.cents
        yield p.account, self.payments, self.cents


def tell(file: str, alert: dict[str, Any], row_id: str) -> None:
    """Send an alert: here, into a file."""
    with Path(file).open("a") as lines:
        lines.write(json.dumps(alert) + "\n")


def build(payments: int, bills: Any, alerts: Any) -> rl.Flow:
    """Return the flow over so many payments."""
    flow = rl.Flow("payments", key_groups=16)
    numbers = flow.read(
        rl.sources.generator({"number": "id"}, rows=payments, bounded=True),
        uid="numbers",
    )
    made = numbers.map(lambda row: payment(row.number), PAYMENT, uid="payments")
    scored = made.key_by("account").process(Score(), uid="score")
    billed = scored.region("billing", uid="to-billing").key_by("account")
    billed.process(Bill(), uid="bill").write(bills, uid="bills")
    large = scored.filter(lambda p: p.cents > LARGE, uid="large")
    large.region("alerts", guarantee="at least once", uid="to-alerts").write(
        alerts, uid="told"
    )
    return flow


def snapshot_once(handle: rl.Handle, store: str, name: str) -> None:
    """Take a snapshot, unless a life before this one has asked for it and got it."""
    try:
        handle.savepoint(name, protocol="unaligned")
    except rl.errors.InvalidConfigError:
        if name not in {each.name for each in rl.open(store).snapshots()}:
            raise


def main() -> None:
    """Run until all payments are billed; with a name, take a snapshot on the way."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--store", default="store/regions")
    parser.add_argument("--out", default="out/regions")
    parser.add_argument("--payments", type=int, default=5_000)
    parser.add_argument("--snapshot", help="name one of all regions before going on")
    given = parser.parse_args()
    out = Path(given.out)
    out.mkdir(parents=True, exist_ok=True)
    flow = build(
        given.payments,
        rl.sinks.sql(
            f"sqlite:///{out.absolute()}/bills.db",
            table="bills",
            how="upsert",
            key="account",
            create=True,
        ),
        rl.sinks.for_each_row(partial(tell, str(out.absolute() / "alerts.jsonl"))),
    )
    options: Any = {
        "execution": "local",
        "max_rows_per_epoch": max(1, given.payments // 12),
    }
    if given.snapshot:
        handle = flow.start(given.store, **options)
        snapshot_once(handle, given.store, given.snapshot)
        handle.stop()
    print(flow.run(given.store, available_now=True, **options))


if __name__ == "__main__":
    main()
