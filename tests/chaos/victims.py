"""The flows that are killed at random, each with the computation it is held against."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from examples.fraud.compare import compare, manifests
from tests.chaos import oracle, windows_truth
from tests.chaos.killing import Life
from tests.chaos.oracle import Verdict
from tests.chaos.worker_flow import Options

import riverlock as rl
from riverlock.snapshot.catalog import Catalog
from riverlock.storage.local import LocalStorage


class WorkerVictim:
    """The flow of the chaos tests; compaction and retention have hardly any grace."""

    epoch_rows = (100, 150, 200)
    last_rows = 2_000

    def __init__(self, root: Path, kills: int) -> None:
        self.store = root / "store"
        self._options = Options(
            store=str(self.store),
            out=str(root / "out"),
            rows=1_000 + 600 * kills,
            join=1,
            retain=5,
            grace="2 seconds",
        )

    def command(self, life: Life) -> tuple[str, ...]:
        chosen = replace(
            self._options, parallelism=life.parallelism, epoch_rows=life.epoch_rows
        )
        return ("tests.chaos.worker_flow", *chosen.arguments())

    def verdict(self) -> Verdict:
        return oracle.check(self._options, keep=5)


class FraudVictim:
    """The example, as it is, against plain Spark SQL over all payments at once."""

    epoch_rows = (300, 1_000, 2_000)
    last_rows = 25_000

    def __init__(self, root: Path, kills: int) -> None:
        self.store, self._out = root / "store", root / "out"
        # A life reads 10,000 at most, and 2,000 on average.
        self._rows = 20_000 + 3_000 * kills

    def command(self, life: Life) -> tuple[str, ...]:
        return (
            "examples.fraud.flow",
            *("--store", str(self.store), "--out", str(self._out)),
            *("--rows", str(self._rows)),
            *("--rows-per-epoch", str(life.epoch_rows)),
            *("--parallelism", str(life.parallelism)),
        )

    def verdict(self) -> Verdict:
        spark = rl.spark_session("random kills")
        try:
            found = compare(spark, self.store, self._out, self._rows)
        finally:
            spark.stop()
        oracle.check_whole(Catalog(LocalStorage(self.store)))
        return Verdict(
            epochs=len(manifests(self.store)),
            rows=sum(each.expected for each in found),
            lost=sum(each.lost for each in found),
            duplicated=sum(each.duplicated for each in found),
            details=tuple(
                f"{each.name}: {each.expected} expected, {each.found} found, lost"
                f" {each.lost}, duplicated {each.duplicated}"
                for each in found
            ),
        )


class WindowsVictim:
    """Windows, sessions and joins into tables, against plain Python over all rows."""

    epoch_rows = (500, 1_000, 2_000)
    last_rows = 6_000

    def __init__(self, root: Path, kills: int, url: str | None = None) -> None:
        self.store, self._out = root / "store", root / "out"
        self._url = url or f"sqlite:///{root.absolute() / 'tables.db'}"
        # A life reads 5,000 at most, and 1,300 on average.
        self._rows = 10_000 + 2_000 * kills

    def command(self, life: Life) -> tuple[str, ...]:
        return (
            "tests.chaos.windows_flow",
            *("--store", str(self.store), "--out", str(self._out)),
            *("--url", self._url, "--rows", str(self._rows)),
            *("--epoch-rows", str(life.epoch_rows)),
            *("--parallelism", str(life.parallelism)),
        )

    def verdict(self) -> Verdict:
        oracle.check_whole(Catalog(LocalStorage(self.store)))
        return windows_truth.compare(self.store, self._out, self._url, self._rows)
