"""Python functions over records, run by Spark's workers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql.types import StructType

from riverlock.core.errors import RiverlockError
from riverlock.core.hidden_columns import HIDDEN
from riverlock.core.types import schema_of
from riverlock.operators.shipped import MAIN
from riverlock.spark.remote import RemoteError
from riverlock.spark.structs import struct_of
from riverlock.worker.row_functions import RowFunction, row_function

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import pyarrow as pa
    from pyspark.sql import DataFrame

    from riverlock.program.graph import RowWise

__all__ = ["row_wise"]


def row_wise(frame: DataFrame, node: RowWise) -> DataFrame:
    """Return a frame to which a Python function was applied."""
    plain = [f for f in frame.schema.fields if f.name not in HIDDEN]
    hidden = [f for f in frame.schema.fields if f.name in HIDDEN]
    names = tuple(f.name for f in hidden)
    function = row_function(node, schema_of(StructType(plain)), names)
    struct = StructType(struct_of(function.output).fields + hidden)
    return frame.mapInArrow(_InWorker(function), struct)


@dataclass(frozen=True)
class _InWorker:
    """Returns the results; an error crosses the JVM as it is."""

    function: RowFunction

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            try:
                made = self.function.split(batch)
            except RiverlockError as error:
                raise RemoteError(error) from error
            yield from made[MAIN].to_batches()
