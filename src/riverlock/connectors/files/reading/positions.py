"""Positions of rows in files: by the order of files, then by place in the file.

Spark packs files into partitions by size, so its own row numbers will not do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

from pyspark.sql import functions as F

from riverlock.core.errors import InvalidConfigError
from riverlock.core.hidden_columns import SEQ

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import Column, DataFrame, SparkSession

__all__ = ["MAX_FILES", "path_of", "with_position"]

# Files per epoch; the look-up of names does not scale.
MAX_FILES: Final = 128
# A position has so many bits; Spark numbers the rows of a partition with 33 of them.
_BITS: Final = 55
_MOST_ROW_BITS, _LEAST_ROW_BITS = 33, 30


def with_position(
    frame: DataFrame, places: Mapping[str, int], largest_bytes: int
) -> DataFrame:
    """Return a frame read from files with the position of each row.

    From the highest bits down: the file, the split in it, the row. Each has the bits
    that it needs.

    Args:
        frame: What Spark read, directly from its files.
        places: The number of each file by its name without folders, or its full path.
        largest_bytes: The size of the largest file.

    Raises:
        InvalidConfigError: The files have more splits than positions have room for.
    """
    step = _least_split(frame.sparkSession)
    splits = (largest_bytes // step).bit_length()
    files = max(places.values()).bit_length()
    rows = min(_MOST_ROW_BITS, _BITS - files - splits)
    if rows < _LEAST_ROW_BITS:
        raise InvalidConfigError(
            "spark.sql.files.maxPartitionBytes and openCostInBytes",
            expected=f"at least {step << (_LEAST_ROW_BITS - rows)} for a file of"
            f" {largest_bytes} bytes",
            found=str(step),
        )
    split = F.expr(f"_metadata.file_block_start div {step}L")
    row = F.monotonically_increasing_id().bitwiseAND(F.lit((1 << rows) - 1))
    number = _file_number(frame, places)
    position = F.shiftleft(number, splits + rows) + F.shiftleft(split, rows) + row
    return frame.withColumn(SEQ, position)


def path_of(address: str) -> str:
    """Return the path of a local file as Spark spells its address."""
    return unquote(address.removeprefix("file://"))


def _least_split(spark: SparkSession) -> int:
    """Return the smallest step in which Spark cuts files."""
    session: Any = spark
    conf = session._jsparkSession.sessionState().conf()
    least = min(conf.filesMaxPartitionBytes(), conf.filesOpenCostInBytes())
    return max(1, int(least))


def _file_number(frame: DataFrame, places: Mapping[str, int]) -> Column:
    if len(places) == 1:
        return F.lit(0).cast("bigint")
    pairs: list[Column] = []
    for uri in frame.inputFiles():
        path = path_of(uri)
        number = places[path] if path in places else places[path.rpartition("/")[2]]
        # The metadata column spells a local address with one slash.
        address = uri.replace("file:///", "file:/", 1)
        pairs += [F.lit(address), F.lit(number).cast("bigint")]
    return F.create_map(*pairs)[F.col("_metadata.file_path")]
