"""Contests in records/s: epochs or batches of ours beside those of other engines."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

from benchmarks import harness
from benchmarks.common import Epoch, Window, median, save, show

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Mapping

    Contend = Callable[[argparse.Namespace, Window], list[Epoch]]

# Beside warm-up and measuring: to start, to let the last epoch end, and to stop.
BESIDE_SECONDS = 60.0
OURS = "riverlock"


def contest(
    name: str,
    title: str,
    contenders: Mapping[str, Contend],
    parser: argparse.ArgumentParser,
) -> None:
    """Run contenders and show their records/s beside ours.

    Args:
        name: The module, and the file of the results.
        title: Of the table; may refer to options.
        contenders: By name; ours is the first. Names that begin with ``riverlock`` are
            ours as well, and run whatever the peers.
        parser: Takes the options of the benchmark.
    """
    mine, *others = contenders
    peers = [each for each in others if not each.startswith(OURS)]
    harness.add_options(parser, peers)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--warm-up", type=float, default=40, help="seconds")
    parser.add_argument("--seconds", type=float, default=15, help="measured")
    parser.add_argument("--only", choices=contenders, help="in this process")
    chosen = parser.parse_args()
    if chosen.only:
        window = Window(chosen.warm_up, chosen.seconds)
        epochs = contenders[chosen.only](chosen, window)
        print(json.dumps([(e.seconds, e.rate) for e in epochs]))
        return
    # An epoch may be long: twice, before it is clear that somebody is stuck.
    most = 2 * (chosen.warm_up + chosen.seconds) + BESIDE_SECONDS
    runs = [
        harness.Contender(
            *(each, [*sys.argv[1:], "--only", each], most),
            each if each in peers else None,
        )
        for each in contenders
    ]
    found = harness.measure(
        f"benchmarks.{name}", runs, _line, chosen, rounds=chosen.rounds
    )
    _compare(name, title, chosen, found, mine)


def _line(epochs: list[list[float]]) -> str:
    rate = median([e[1] for e in epochs])
    return f"{rate:,.0f} records/s, {median([e[0] for e in epochs]):.3f} s per epoch"


def _compare(
    name: str,
    title: str,
    chosen: argparse.Namespace,
    found: dict[str, list[list[list[float]]]],
    mine: str,
) -> None:
    """Show and keep what all rounds together say."""
    all_of = {n: [e for each in rounds for e in each] for n, rounds in found.items()}
    seconds = {n: median([e[0] for e in epochs]) for n, epochs in all_of.items()}
    rates = {n: median([e[1] for e in epochs]) for n, epochs in all_of.items()}
    # The median is that of an epoch like most; what a few do for all is in the mean.
    means = {
        n: sum(s * rate for s, rate in epochs) / sum(s for s, _ in epochs)
        for n, epochs in all_of.items()
    }
    ratios = {n: rates[mine] / rate for n, rate in rates.items() if mine in rates}
    show(
        title.format(**vars(chosen)),
        ["", "records/s", "mean", "s per epoch", "riverlock is"],
        [
            [
                *(n, f"{rates[n]:,.0f}", f"{means[n]:,.0f}"),
                *(f"{seconds[n]:.3f}", _ratio(ratios.get(n))),
            ]
            for n in rates
        ],
    )
    result = {"records_per_second": rates, "seconds": seconds, "ratios": ratios}
    # Options apart: there is one that is called seconds, too.
    options = vars(chosen)
    save(name, {**result, "mean_records_per_second": means, "options": options})


def _ratio(ratio: float | None) -> str:
    if ratio is None:
        return ""
    return f"{ratio:.1f} x" if ratio > 1 else f"{ratio:.0%} of"
