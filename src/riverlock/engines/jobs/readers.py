"""Readers: how Spark reads the ranges of each kind of source."""

from __future__ import annotations

from typing import TYPE_CHECKING

from riverlock.connectors.base.own_source import ReplayableSource
from riverlock.connectors.channel.ends import ChannelSource, JoinedChannel, LoopSource
from riverlock.connectors.channel.joined_reader import end_of
from riverlock.connectors.channel.spark_reader import (
    SparkChannelReader,
    SparkJoinedReader,
)
from riverlock.connectors.databases.reading.reader import SqlReader
from riverlock.connectors.databases.source import Sql
from riverlock.connectors.files.reading.reader import FilesReader
from riverlock.connectors.generator.reader import GeneratorReader
from riverlock.connectors.kafka.reader import KafkaReader
from riverlock.connectors.kafka.source import Kafka
from riverlock.connectors.own_source.spark_reader import SparkTableReader
from riverlock.connectors.python_source.reader import PythonReader
from riverlock.connectors.rows.source import Rows
from riverlock.connectors.rows.spark_reader import SparkRowsReader
from riverlock.connectors.spark_stream.landing import LandingReader
from riverlock.core.errors import InvalidFlowError
from riverlock.sources import Files, Generator, PythonSource, SparkStream
from riverlock.storage.open import open_storage

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from riverlock.connectors.base.source_reader import Reader
    from riverlock.core.clock import Clock
    from riverlock.program.graph import Read
    from riverlock.snapshot.format.store_layout import RegionPaths
    from riverlock.storage.base import Storage

__all__ = ["reader_of"]


def reader_of(
    spark: SparkSession,
    node: Read,
    place: tuple[Storage, RegionPaths],
    clock: Clock,
    *,
    takes_all: bool,
) -> Reader:
    """Return the reader of a source.

    Args:
        spark: The session.
        node: What is read.
        place: The store, and where in it.
        clock: Where a pace comes from.
        takes_all: ``available_now``: what is there at the start is all there is.

    Raises:
        InvalidFlowError: Nothing reads it.
    """
    match node.source:
        case ChannelSource() | LoopSource() | JoinedChannel() as source:
            return _channel(spark, node.uid, source, place[0], takes_all=takes_all)
        case Files() as source:
            return FilesReader(spark, source, node.uid, place)
        case Generator() as source:
            return GeneratorReader(spark, source, clock)
        case Kafka() as source:
            return KafkaReader(spark, source, node.uid)
        case PythonSource() as source:
            return PythonReader(spark, source, takes_all=takes_all)
        case Rows() as source:
            return SparkRowsReader(spark, source)
        case Sql() as source:
            return SqlReader(spark, source, node.uid, clock, takes_all=takes_all)
        case SparkStream() as source:
            return LandingReader(spark, source, node.uid, place[0], takes_all=takes_all)
        case ReplayableSource() as source:
            return SparkTableReader(spark, source, node.uid)
        case other:
            raise InvalidFlowError(
                f"source {node.uid!r}",
                expected="a source from rl.sources",
                found=repr(other),
            )


def _channel(
    spark: SparkSession,
    uid: str,
    source: ChannelSource | LoopSource | JoinedChannel,
    storage: Storage,
    *,
    takes_all: bool,
) -> Reader:
    if not isinstance(source, JoinedChannel):
        return SparkChannelReader(spark, source, uid, storage)
    there = open_storage(source.store)
    joined = SparkJoinedReader(spark, end_of(source), uid, there)
    return joined.join(takes_all=takes_all)
