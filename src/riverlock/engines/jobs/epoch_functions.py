"""``rl.sinks.for_each_epoch``: a user function that receives a DataFrame."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from riverlock.snapshot.format.state_files import read_file

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from riverlock.connectors.base.committer import Owner
    from riverlock.core.types import Schema
    from riverlock.sinks import EpochFunction
    from riverlock.snapshot.format.records import SinkOutput
    from riverlock.storage.base import Storage

__all__ = ["EpochFunctionCommitter"]


@dataclass
class EpochFunctionCommitter:
    """Calls the user's function with the staged rows."""

    sink: EpochFunction
    storage: Storage
    spark: SparkSession
    schema: Schema
    guarantee: str = (
        "at least once, always with the same rows: exactly once if the function is"
        " idempotent by epoch"
    )

    def open(self, owner: Owner) -> None:
        """Nothing to check."""

    def commit(self, epoch: int, output: SinkOutput) -> None:
        """Call the function, unless the epoch has nothing to say.

        An empty whole table says that its rows are gone.
        """
        if not output.tokens:
            if output.replaces:
                empty = self.spark.createDataFrame([], self.schema.ddl)
                self.sink.function(empty, epoch)
            return
        # Checks every file against its checksum before user code sees a row.
        # One after the other: an epoch need not fit into the driver.
        for t in output.tokens:
            read_file(self.storage, t["path"], size=t["bytes"], expected=t["checksum"])
        root = self.storage.uri.rstrip("/")
        paths: list[Any] = [f"{root}/{t['path']}" for t in output.tokens]
        self.sink.function(self.spark.read.parquet(*paths), epoch)
