"""Does an epoch cost what it touches? The same work over little and much state.

    python -m benchmarks.growth [--touched 10000] [--small 50000] [--large 5000000]

Fills a store with so many keys, then measures epochs that touch the same number of
them. The mean counts what the median hides: every now and then a worker writes the
changes of the last epochs to its LMDB file.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from statistics import mean
from typing import Any

from benchmarks.common import in_child, median, save, show
from benchmarks.keyed_state import filling


def epoch_seconds(stored: int, touched: int, epochs: int) -> list[float]:
    """Return the duration of each epoch that touches ``touched`` of ``stored`` keys."""
    seconds: list[float] = []
    with tempfile.TemporaryDirectory() as store:
        options: dict[str, Any] = {"available_now": True, "epoch_target": None}
        filling(stored, stored).run(store, max_rows_per_epoch=500_000, **options)
        filling(stored, stored + touched * epochs).run(
            store,
            max_rows_per_epoch=touched,
            on_status=lambda s: (
                seconds.append(s.epoch_seconds) if s.state == "running" else None
            ),
            **options,
        )
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--touched", type=int, default=10_000)
    parser.add_argument("--small", type=int, default=50_000)
    parser.add_argument("--large", type=int, default=5_000_000)
    parser.add_argument("--epochs", type=int, default=64)
    parser.add_argument("--only", type=int, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.only:
        found = epoch_seconds(chosen.only, chosen.touched, chosen.epochs)
        print(json.dumps(found[4:]))
        return
    medians, means = {}, {}
    for stored in (chosen.small, chosen.large):
        steady = in_child(
            "benchmarks.growth",
            *("--only", str(stored), "--touched", str(chosen.touched)),
            *("--epochs", str(chosen.epochs)),
        )
        medians[stored], means[stored] = median(steady), mean(steady)
    base = medians[chosen.small]
    show(
        f"an epoch that touches {chosen.touched:,} keys",
        ["keys stored", "median s", "ratio", "mean s", "ratio"],
        [
            [
                f"{k:,}",
                *(f"{s:.3f}", f"{s / base:.2f}"),
                *(f"{means[k]:.3f}", f"{means[k] / means[chosen.small]:.2f}"),
            ]
            for k, s in medians.items()
        ],
    )
    ratio = medians[chosen.large] / base
    save(
        "growth",
        {"seconds": medians, "means": means, "ratio": ratio, **vars(chosen)},
    )


if __name__ == "__main__":
    main()
