"""Positions of rows in files: by file as given, then by place in the file.

Spark packs files into partitions by size, so its own row numbers will not do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import unquote

from pyspark.sql import functions as F

from riverlock.runtime.columns import SEQ

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import Column, DataFrame

__all__ = ["MAX_FILES", "with_position"]

# Files per epoch; positions have room for 8,192, the look-up of names does not scale.
MAX_FILES = 128


def with_position(frame: DataFrame, places: Mapping[str, int]) -> DataFrame:
    """Return a frame read from files with the position of each row.

    From the top: 13 bits of file, 12 bits of split (in steps of 4 MiB, the smallest
    that Spark makes), 30 bits of row.

    Args:
        frame: What Spark read, directly from its files.
        places: The number of each file by its name without folders, or its full path.
    """
    number = _file_number(frame, places)
    split = F.least(F.expr("_metadata.file_block_start div 4194304"), F.lit(4095))
    row = F.monotonically_increasing_id().bitwiseAND(F.lit((1 << 30) - 1))
    position = F.shiftleft(number, 42) + F.shiftleft(split, 30) + row
    return frame.withColumn(SEQ, position)


def _file_number(frame: DataFrame, places: Mapping[str, int]) -> Column:
    if len(places) == 1:
        return F.lit(0).cast("bigint")
    pairs: list[Column] = []
    for uri in frame.inputFiles():
        path = unquote(uri.removeprefix("file://"))
        number = places[path] if path in places else places[path.rpartition("/")[2]]
        # The metadata column spells a local address with one slash.
        address = uri.replace("file:///", "file:/", 1)
        pairs += [F.lit(address), F.lit(number).cast("bigint")]
    return F.create_map(*pairs)[F.col("_metadata.file_path")]
