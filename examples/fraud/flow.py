"""Card fraud: alerts when a card is used too often, sessions that end by a timer.

PYTHONPATH=. riverlock run examples/fraud/flow.py --store store/fraud
make demo          # watch it be killed
"""

import argparse
import os
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import riverlock as rl
from examples.fraud.transactions import COLUMNS, LIMIT_CENTS, ROWS, SEED

WINDOW = rl.minutes(1)
GAP = rl.minutes(10)
TOO_MANY = 5


@dataclass
class Payment:
    at: datetime
    cents: int


class Velocity(rl.Process):
    """Alerts on the fifth payment within a minute; forgets a card that rests."""

    output = "card string, tx bigint, at timestamp, payments int, cents bigint"
    odd = rl.SideOutput("tx bigint, card string, why string")
    sessions = rl.SideOutput(
        "card string, started timestamp, ended timestamp, payments int, cents bigint"
    )

    started = rl.Value("timestamp")
    last = rl.Value("timestamp")
    payments = rl.Value("int", default=0)
    cents = rl.Value("bigint", default=0)
    recent = rl.List(Payment)

    def on_event(self, tx: Any, ctx: rl.Context) -> Iterator[Any]:
        if not 0 < tx.cents <= LIMIT_CENTS:
            why = "too large" if tx.cents > 0 else "not positive"
            ctx.emit(self.odd, (tx.tx, tx.card, why))
            return

        at = tx.at
        if self.last is not None:
            ctx.delete_timer(self.last + GAP)
            # Timers fire between epochs. A payment that comes after the deadline but
            # in the same epoch must not depend on that: it ends the session itself.
            if at - self.last > GAP:
                self._end_session(ctx)
        if self.started is None:
            self.started = at
        self.last = at
        self.payments += 1
        self.cents += tx.cents
        ctx.set_timer(at + GAP)

        recent = [p for p in self.recent if at - p.at < WINDOW]
        recent.append(Payment(at, tx.cents))
        self.recent.replace(recent)
        if len(recent) >= TOO_MANY:
            yield tx.card, tx.tx, at, len(recent), sum(p.cents for p in recent)

    def on_timer(self, at: datetime, ctx: rl.Context) -> None:
        self._end_session(ctx)

    def _end_session(self, ctx: rl.Context) -> None:
        row = (ctx.key, self.started, self.last, self.payments, self.cents)
        ctx.emit(self.sessions, row)
        del self.started, self.last, self.payments, self.cents
        self.recent.clear()


def build(out: str, rows: int = ROWS) -> rl.Flow:
    """Return the flow; its results appear in folders below ``out``."""
    flow = rl.Flow("fraud")
    source = rl.sources.generator(COLUMNS, rows=rows, seed=SEED)
    payments = flow.read(source, uid="payments").event_time("at")

    alerts = payments.key_by("card").process(Velocity(), uid="velocity")
    alerts.write(rl.sinks.files(f"{out}/alerts", format="json"))
    alerts.side("odd").write(rl.sinks.files(f"{out}/odd", format="csv"))
    alerts.side("sessions").write(rl.sinks.files(f"{out}/sessions", format="parquet"))

    merchants = (
        payments.where(f"cents between 1 and {LIMIT_CENTS}")
        .key_by("merchant")
        .agg(
            payments="count(*)",
            cents="sum(cents)",
            largest="max(cents)",
            uid="merchants",
        )
    )
    merchants.write(rl.sinks.files(f"{out}/merchants", format="parquet"))
    return flow


flow = build(os.environ.get("FRAUD_OUT", str(Path("out/fraud").absolute())))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--store", default="store/fraud")
    parser.add_argument("--out", default="out/fraud")
    parser.add_argument("--rows", type=int, default=ROWS)
    parser.add_argument("--rows-per-epoch", type=int)
    parser.add_argument("--parallelism", type=int)
    chosen = parser.parse_args()
    build(str(Path(chosen.out).absolute()), chosen.rows).run(
        chosen.store,
        available_now=True,
        max_rows_per_epoch=chosen.rows_per_epoch,
        parallelism=chosen.parallelism,
        retain_epochs=1_000,
    )


if __name__ == "__main__":
    main()
