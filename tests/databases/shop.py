"""A flow with state on Spark that writes three tables; also run as a child."""

from __future__ import annotations

import sys
from typing import Any

import riverlock as rl

ROWS = 150
EPOCH_ROWS = 50
COLUMNS = {"id": "id", "k": "concat('k', id % 13)", "amount": "id * id % 97"}


def build(url: str, schema: str) -> rl.Flow:
    """Totals by key as upserts, their whole table as replacement, rows as they are."""

    def sink(table: str, **how: Any) -> Any:
        return rl.sinks.sql(url, table=f"{schema}.{table}", create=True, **how)

    flow = rl.Flow("shop")
    rows = flow.read(rl.sources.generator(COLUMNS, rows=ROWS), uid="rows")
    totals = rows.key_by("k").agg(n="count(*)", total="sum(amount)", uid="totals")
    rows.write(sink("raw"), uid="raw")
    totals.write(sink("totals", how="upsert", key="k"), mode="update", uid="upserts")
    totals.write(sink("report", how="replace"), mode="complete", uid="report")
    return flow


def expected() -> tuple[list[Any], list[Any]]:
    """Compute the tables in one go."""
    raw = [(n, f"k{n % 13}", n * n % 97) for n in range(ROWS)]
    keys = sorted({k for _, k, _ in raw})
    totals = [
        (k, sum(1 for r in raw if r[1] == k), sum(r[2] for r in raw if r[1] == k))
        for k in keys
    ]
    return raw, totals


if __name__ == "__main__":
    build(sys.argv[1], sys.argv[2]).run(
        sys.argv[3], available_now=True, max_rows_per_epoch=EPOCH_ROWS
    )
