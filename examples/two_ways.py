"""The same running totals in two ways, and what they cost.

``update_state_by_key`` calls its function for every key it knows, in every epoch;
``map_with_state`` calls it for every record. With many quiet keys the first pays for
the state, the second for the input.

    python -m examples.two_ways
    riverlock run examples/two_ways.py --store store/two-ways --available-now
"""

from typing import Any

import riverlock as rl

KEYS = 20_000
# First every account once, then only the first hundred of them.
COLUMNS = {
    "account": f"if(id < {KEYS}, id, pmod(id, 100))",
    "amount": "pmod(xxhash64(id, seed), 1000)",
}


def update(records: list[Any], total: int | None) -> int:
    """All new records of a key at once, also when there are none."""
    amounts: list[int] = [r.amount for r in records]
    return sum(amounts, start=total or 0)


def add(record: Any, total: int | None) -> tuple[Any, int]:
    """One record; returns a row and the new state."""
    total = (total or 0) + record.amount
    return (record.account, total), total


def build(way: str, sink: Any, rows: int = KEYS + 5_000) -> rl.Flow:
    flow = rl.Flow(f"two-ways-{way.replace('_', '-')}")
    payments = flow.read(rl.sources.generator(COLUMNS, rows=rows), uid="payments")
    accounts = payments.key_by("account")
    if way == "update_state_by_key":
        totals = accounts.update_state_by_key(update, state="long", uid="totals")
    else:
        totals = accounts.map_with_state(
            add, state="long", output="account long, total long", uid="totals"
        )
    totals.write(sink, uid="out")
    return flow


flow = build("map_with_state", rl.sinks.console(rows=3))


def main() -> None:
    for way in ("update_state_by_key", "map_with_state"):
        sink = rl.sinks.memory()
        build(way, sink).run(
            f"store/two-ways/{way}", available_now=True, max_rows_per_epoch=KEYS
        )
        rows = [len(sink.epochs[n]) for n in sorted(sink.epochs)]
        print(f"{way}: rows written per epoch {rows}")


if __name__ == "__main__":
    main()
