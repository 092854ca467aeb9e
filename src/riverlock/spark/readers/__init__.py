"""Readers: how Spark reads the ranges of each kind of source."""

from __future__ import annotations

from typing import TYPE_CHECKING

from riverlock.core.errors import InvalidFlowError
from riverlock.sources import Files, Generator, PythonSource, SparkStream
from riverlock.spark.readers.files import FilesReader
from riverlock.spark.readers.generator import GeneratorReader
from riverlock.spark.readers.landing import LandingReader
from riverlock.spark.readers.python import PythonReader

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from riverlock.core.clock import Clock
    from riverlock.flow.graph import Read
    from riverlock.snapshot.layout import RegionPaths
    from riverlock.sources.reader import Reader
    from riverlock.storage.base import Storage

__all__ = ["reader_of"]


def reader_of(
    spark: SparkSession, node: Read, storage: Storage, paths: RegionPaths, clock: Clock
) -> Reader:
    """Return the reader of a source.

    Raises:
        InvalidFlowError: Nothing reads it.
    """
    match node.source:
        case Files() as source:
            return FilesReader(spark, source, node.uid, (storage, paths))
        case Generator() as source:
            return GeneratorReader(spark, source, clock)
        case PythonSource() as source:
            return PythonReader(spark, source)
        case SparkStream() as source:
            return LandingReader(spark, source, node.uid, storage)
        case other:
            raise InvalidFlowError(
                f"source {node.uid!r}",
                expected="something of rl.sources",
                found=repr(other),
            )
