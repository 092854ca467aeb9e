"""Does an epoch cost what it touches? The same work over little and much of everything.

    python -m benchmarks.growth [keys] [timers] [epochs]
        [--sizes 10000 100000 1000000 10000000]

``keys`` and ``timers`` fill a store with so many keys, the latter each with one timer
that is not due, then measure epochs that touch the same number of them. The mean counts
what the median hides: every now and then a worker writes the changes of the last epochs
to its LMDB file. ``epochs`` runs one flow for long, keeps all its epochs, and compares
the last with the first, in time and in the memory of the driver and its children.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from contextlib import suppress
from pathlib import Path
from statistics import mean
from typing import Any

from benchmarks import harness
from benchmarks.common import median, save, show
from benchmarks.keyed_state import filling, numbers, running
from benchmarks.processes import descendants

# What a run may take at most: a slow machine, and a store of ten million keys.
STARTING, FILLED_PER_SECOND, SECONDS_PER_EPOCH = 60.0, 30_000, 1.0


def with_timers(keys: int, rows: int) -> Any:
    """Return the flow in which each key has a timer, a century from now."""
    import riverlock as rl

    class Waiting(rl.Process):
        n = rl.Value("bigint", default=0)

        def on_event(self, record: Any, ctx: Any) -> None:
            self.n += 1
            if self.n == 1:
                ctx.set_timer(ctx.now + rl.days(36_500), processing=True)

    return filling(keys, rows, Waiting())


def epoch_seconds(what: str, stored: int, touched: int, epochs: int) -> list[float]:
    """Return the duration of each epoch that touches ``touched`` of ``stored`` keys."""
    make = {"keys": filling, "timers": with_timers}[what]
    seconds: list[float] = []
    with tempfile.TemporaryDirectory() as store:
        options: dict[str, Any] = {"available_now": True, "epoch_target": None}
        make(stored, stored).run(store, max_rows_per_epoch=500_000, **options)
        make(stored, stored + touched * epochs).run(
            store,
            max_rows_per_epoch=touched,
            on_status=lambda s: (
                seconds.append(s.epoch_seconds) if s.state == "running" else None
            ),
            **options,
        )
    return seconds


def long_run(epochs: int) -> list[tuple[float, float, float, float]]:
    """Return seconds, and the MiB of driver, Spark and workers, of each epoch."""
    found: list[tuple[float, float, float, float]] = []

    def see(status: Any) -> None:
        if status.state == "running":
            found.append((status.epoch_seconds, *_memory()))

    with tempfile.TemporaryDirectory() as store:
        running(10_000, numbers(10_000)).run(
            store,
            epoch_target=None,
            max_rows_per_epoch=1_000,
            max_epochs=epochs,
            retain_epochs=epochs,
            on_status=see,
        )
    return found


def _memory() -> tuple[float, float, float]:
    """Return what driver, virtual machine and workers hold for themselves, in MiB.

    Workers share pages with the daemon that they were forked from, and map files that
    the system may take back at any time: files are not counted.
    """
    driver = Path("/proc/self")
    java = workers = 0.0
    for child in descendants(driver):
        with suppress(OSError):  # it may be gone by now
            if (child / "comm").read_text() == "java\n":
                java += _own(child)
            else:
                workers += _own(child)
    return _own(driver), java, workers


def _own(process: Path) -> float:
    lines = (process / "smaps_rollup").read_text().splitlines()[1:]
    sizes = dict(line.split(":", 1) for line in lines)
    return int(sizes["Anonymous"].split()[0]) / 1024


def contenders(what: str, chosen: argparse.Namespace) -> list[harness.Contender]:
    """Return a run for each size, or the long one."""
    if what == "epochs":
        arguments = (what, "--only", "1", "--long", str(chosen.long))
        seconds = STARTING + SECONDS_PER_EPOCH * chosen.long
        return [harness.Contender("epochs", arguments, seconds)]
    options = ("--touched", str(chosen.touched), "--epochs", str(chosen.epochs))
    return [
        harness.Contender(
            f"{stored:,} {what}",
            (what, "--only", str(stored), *options),
            STARTING + stored / FILLED_PER_SECOND + SECONDS_PER_EPOCH * chosen.epochs,
        )
        for stored in chosen.sizes
    ]


def by_size(
    what: str, chosen: argparse.Namespace, found: dict[str, Any]
) -> dict[str, Any]:
    steady = {
        stored: found[f"{stored:,} {what}"][0]
        for stored in chosen.sizes
        if f"{stored:,} {what}" in found
    }
    medians = {stored: median(seconds) for stored, seconds in steady.items()}
    means = {stored: mean(seconds) for stored, seconds in steady.items()}
    least = min(medians)
    show(
        f"an epoch that touches {chosen.touched:,} keys",
        [f"{what} stored", "median s", "ratio", "mean s", "ratio"],
        [
            [
                f"{k:,}",
                *(f"{s:.3f}", f"{s / medians[least]:.2f}"),
                *(f"{means[k]:.3f}", f"{means[k] / means[least]:.2f}"),
            ]
            for k, s in medians.items()
        ],
    )
    result: dict[str, Any] = {"seconds": medians, "means": means}
    if len(medians) == len(chosen.sizes):
        result["ratio"] = medians[max(medians)] / medians[least]
    return result


def by_epochs(chosen: argparse.Namespace, found: list[list[float]]) -> dict[str, Any]:
    tenth = len(found) // 10
    names = ("seconds", "driver", "java", "workers")
    parts = {
        f"{start + 1:,} to {start + tenth:,}": [
            median(column) for column in zip(*found[start : start + tenth], strict=True)
        ]
        for start in range(tenth, len(found) - tenth + 1, tenth)
    }
    show(
        f"epochs of 1,000 records, all {chosen.long} retained",
        ["epochs", "median s", "driver MiB", "Java MiB", "workers MiB"],
        [[n, f"{v[0]:.3f}", *(f"{m:.0f}" for m in v[1:])] for n, v in parts.items()],
    )
    first, *_, last = parts.values()
    ratios = {n: b / a for n, a, b in zip(names, first, last, strict=True)}
    return {"parts": parts, "ratios": ratios}


def measured(chosen: argparse.Namespace) -> list[Any]:
    """Return what a contender finds."""
    (what,) = chosen.what
    if what == "epochs":
        return long_run(chosen.long)
    return epoch_seconds(what, chosen.only, chosen.touched, chosen.epochs)[4:]


def main() -> None:
    kinds = ("keys", "timers", "epochs")
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", nargs="*", default=["keys"], choices=kinds)
    parser.add_argument("--touched", type=int, default=10_000)
    parser.add_argument("--sizes", type=int, nargs="+", default=[10**4, 10**7])
    parser.add_argument("--epochs", type=int, default=64, help="measured for each size")
    parser.add_argument(
        "--long", type=int, default=2_000, help="epochs of the long run"
    )
    parser.add_argument("--only", type=int, help=argparse.SUPPRESS)
    harness.add_options(parser)
    chosen = parser.parse_args()
    if chosen.only:
        print(json.dumps(measured(chosen)))
        return
    runs = [each for what in chosen.what for each in contenders(what, chosen)]
    found = harness.measure("benchmarks.growth", runs, _line, chosen)
    for what in chosen.what:
        if what == "epochs" and what in found:
            result = by_epochs(chosen, *found[what])
        elif any(name.endswith(f" {what}") for name in found):
            result = by_size(what, chosen, found)
        else:
            continue  # its line says why
        save(f"growth_{what}", {**result, **vars(chosen)})


def _line(result: list[Any]) -> str:
    seconds = [each[0] if isinstance(each, list) else each for each in result]
    return f"{median(seconds):.3f} s per epoch, mean {mean(seconds):.3f} s"


if __name__ == "__main__":
    main()
