"""Inputs: ``rl.sources.files(...)`` and the others. All are replayable."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from riverlock.connectors.base.own_source import (
    ReplayableSource,
    SourcePartition,
    SourceReader,
)
from riverlock.connectors.base.source import Source, check_missing
from riverlock.connectors.channel.ends import JoinedChannel
from riverlock.connectors.databases.source import sql
from riverlock.connectors.kafka.source import kafka
from riverlock.core.errors import InvalidConfigError
from riverlock.core.ids import check_name
from riverlock.core.keywords import refuse_near, told_keywords
from riverlock.core.suggestions import did_you_mean
from riverlock.core.types import Schema, SchemaLike, schema_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from datetime import timedelta

__all__ = [
    "ReplayableSource",
    "Source",
    "SourcePartition",
    "SourceReader",
    "channel",
    "files",
    "generator",
    "kafka",
    "python",
    "rate",
    "socket",
    "spark_stream",
    "sql",
]

_FILE_KEYWORDS = ("path", "format", "schema", "bad_rows", "bounded", "missing")
_FORMATS = ("json", "csv", "parquet", "text")
# Options of Spark's reader with which rows or files would be left out unseen.
_REFUSED = (
    "mode",
    "columnnameofcorruptrecord",
    "pathglobfilter",
    "modifiedbefore",
    "modifiedafter",
    "recursivefilelookup",
    "ignorecorruptfiles",
    "ignoremissingfiles",
)


@dataclass(frozen=True, kw_only=True)
class Files:
    """Files of a directory; see ``files``."""

    path: str
    format: str
    schema: Schema | None
    bad_rows: str
    bounded: bool = False
    missing: str = "fail"
    options: Mapping[str, str] = field(default_factory=dict)
    kind: str = "files"
    # As it was given; ``path`` is what it meant where the flow was built.
    given: str = ""

    @property
    def place(self) -> str:
        """What distinguishes it from others of its kind."""
        return self.given or self.path

    @property
    def bad_columns(self) -> str:
        """The columns of ``stream.bad``."""
        return "file string, record string"


@told_keywords
def files(  # noqa: PLR0913 - keyword-only settings
    path: str,
    *,
    format: str,
    schema: SchemaLike | None = None,
    bad_rows: str = "report",
    bounded: bool = False,
    missing: str = "fail",
    **options: object,
) -> Files:
    """Read the files of a directory, each exactly once, new ones as they appear.

    Files must be moved in whole and never changed: an epoch can be read again later.
    Names that begin with ``.`` or ``_``, or end in ``.tmp`` or ``._COPYING_``, are
    taken for unfinished files and ignored.

    Every line is a row of the stream or of ``stream.bad``, whichever columns are used.
    Bad are: a value that does not fit its column, text that is not UTF-8, CSV with too
    few or too many fields, more than one value in a line of JSON. Blank lines of JSON
    and CSV are not rows.

    Args:
        path: A directory, or a pattern such as ``in/2026-*``.
        format: json, csv, parquet or text.
        schema: The columns; required for json and csv.
        bad_rows: ``report`` keeps rows that cannot be parsed out of the stream, counts
            them in status and offers them as ``stream.bad``; ``fail`` stops the flow.
        bounded: Whether no more files will come. Event time then ends with the last of
            them, so that every window emits and every timer fires.
        missing: What to do if the directory (for a pattern, the one above it) does not
            exist: ``fail``, when the flow is checked, at its start and while it runs;
            or ``wait`` for it.
        options: Options of Spark's reader, such as ``header=True``. Options that would
            silently drop rows or files are refused.

    Raises:
        InvalidConfigError: An argument does not fit.
    """
    if format not in _FORMATS:
        raise InvalidConfigError(
            "files(format=)",
            expected=" or ".join(_FORMATS),
            found=repr(format),
            hint=did_you_mean(format, _FORMATS),
        )
    if bad_rows not in ("report", "fail"):
        raise InvalidConfigError(
            "files(bad_rows=)", expected="report or fail", found=repr(bad_rows)
        )
    check_missing(missing)
    refuse_near("files()", options, _FILE_KEYWORDS)
    for name in options:
        if name.lower() in _REFUSED:
            raise InvalidConfigError(
                f"files {path!r}",
                expected="options that leave out neither rows nor files",
                found=name,
                hint="bad_rows= says what becomes of rows that cannot be parsed; a"
                " pattern as path chooses files",
            )
    if format == "text":
        schema = "value string"
    if schema is None:
        raise InvalidConfigError(
            f"files {path!r}",
            expected="a schema, since columns must not depend on what has arrived",
            found="none",
            hint='write schema="user string, amount double"',
        )
    return Files(
        path=os.path.abspath(path),  # noqa: PTH100 - it may be a pattern
        given=path,
        format=format,
        schema=schema_of(schema),
        bad_rows=bad_rows,
        bounded=bounded,
        missing=missing,
        options={k: _option(v) for k, v in options.items()},
    )


def _option(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


@dataclass(frozen=True, kw_only=True)
class Generator:
    """Rows made from their number; see ``generator``."""

    columns: Mapping[str, str]
    rows: int | None
    rows_per_second: float | None
    seed: int
    partitions: int | None
    bounded: bool = False
    kind: str = "generator"
    schema: Schema | None = None

    @property
    def place(self) -> str:
        """What distinguishes it from others of its kind."""
        return ", ".join(f"{name}: {text}" for name, text in self.columns.items())


@told_keywords
def generator(  # noqa: PLR0913 - keyword-only settings
    columns: Mapping[str, str],
    *,
    rows: int | None = None,
    rows_per_second: float | None = None,
    seed: int = 0,
    partitions: int | None = None,
    bounded: bool = False,
) -> Generator:
    """Make rows from their number: the same rows on every machine and every time.

    Each column is a SQL expression over ``id`` (the row's number) and ``seed``, such as
    ``"pmod(xxhash64(id, seed), 100)"``.

    Args:
        columns: Expressions by column name.
        rows: How many rows there are now; None: no end.
        rows_per_second: Let rows appear at this pace instead of all at once.
        seed: The value of ``seed``.
        partitions: Spark partitions per epoch; by default the parallelism.
        bounded: Whether there will never be more than ``rows``. Event time then ends
            with the last of them, so that every window emits and every timer fires.

    Raises:
        InvalidConfigError: There is neither an end nor a pace, or it is bounded
            without an end.
    """
    if bounded and rows is None:
        raise InvalidConfigError(
            "generator()", expected="rows, to be bounded", found="no number of rows"
        )
    if rows is None and rows_per_second is None:
        raise InvalidConfigError(
            "generator()", expected="rows or rows_per_second", found="neither"
        )
    if not columns:
        raise InvalidConfigError("generator()", expected="columns", found="none")
    return Generator(
        columns=dict(columns),
        rows=rows,
        rows_per_second=rows_per_second,
        seed=seed,
        partitions=partitions,
        bounded=bounded,
    )


@told_keywords
def rate(rows_per_second: float = 1, *, rows: int | None = None) -> Generator:
    """Make rows ``(timestamp, value)`` at a steady pace, as Spark's rate source does.

    Unlike Spark's, it is replayable: the timestamps follow from the row's number.
    """
    return generator(
        {"timestamp": "created", "value": "id"},
        rows=rows,
        rows_per_second=rows_per_second,
    )


@dataclass(frozen=True, kw_only=True)
class PythonSource:
    """A PySpark Python data source; see ``python``."""

    data_source: Any
    schema: Schema | None
    options: Mapping[str, str] = field(default_factory=dict)
    kind: str = "python"

    @property
    def place(self) -> str:
        """What distinguishes it from others of its kind."""
        return str(self.data_source.__qualname__)


@told_keywords
def python(
    data_source: type, *, schema: SchemaLike | None = None, **options: object
) -> PythonSource:
    """Read a stream with a PySpark ``DataSource`` class (its stream reader).

    Both kinds of reader work: ``streamReader`` and ``simpleStreamReader``.

    Raises:
        InvalidConfigError: The class has no stream reader.
    """
    names = ("streamReader", "simpleStreamReader")
    if not any(hasattr(data_source, n) for n in names):
        raise InvalidConfigError(
            "python()", expected="a DataSource class", found=repr(data_source)
        )
    known = None if schema is None else schema_of(schema)
    return PythonSource(
        data_source=data_source,
        schema=known,
        options={k: _option(v) for k, v in options.items()},
    )


@dataclass(frozen=True, kw_only=True)
class SparkStream:
    """A Structured Streaming DataFrame, landed; see ``spark_stream``."""

    build: Callable[[Any], Any]
    channel: str
    is_replayable: bool
    trigger_us: int
    kind: str = "spark_stream"
    schema: Schema | None = None

    @property
    def place(self) -> str:
        """What distinguishes it from others of its kind."""
        return self.channel


@told_keywords
def spark_stream(
    build: Callable[[Any], Any],
    *,
    channel: str,
    replayable: bool = True,
    trigger: str | timedelta = "0 seconds",
) -> SparkStream:
    """Read any Structured Streaming DataFrame, by landing it in a durable channel.

    Spark's query writes micro-batches into the channel, and the flow reads them from
    there. So even a source that cannot be read twice becomes replayable.

    Args:
        build: ``lambda spark: spark.readStream.format(…).load()``.
        channel: Name of the channel in the store; keep it when the code changes.
        replayable: Whether Spark's source can go back to its last position after a
            restart (Kafka, files). A socket cannot: what was sent while the flow was
            down is lost; what was landed is not.
        trigger: Pace of the landing query.
    """
    from riverlock.core.times import duration_us

    return SparkStream(
        build=build,
        channel=check_name("channel", channel),
        is_replayable=replayable,
        trigger_us=duration_us(trigger),
    )


@told_keywords
def socket(host: str, port: int, *, channel: str = "socket") -> SparkStream:
    """Read lines of text from a TCP socket, as one column ``value``."""

    def build(spark: Any) -> Any:
        reader = spark.readStream.format("socket")
        return reader.option("host", host).option("port", port).load()

    return spark_stream(build, channel=channel, replayable=False)


@told_keywords
def channel(store: str, name: str, *, timed: bool = True) -> JoinedChannel:
    """Read a channel that another flow publishes: ``Stream.publish(name)``.

    It begins with the oldest epoch that the other store keeps, and reads each epoch
    once, in order. Columns, event times and watermarks are those of the writer. The
    writer keeps what this flow has not read, from its first start on: a flow that will
    not come back must be removed with ``rl.stores.forget_reader``.

    Args:
        store: The store of the flow that publishes; it need not be there yet.
        name: The name of the channel.
        timed: Whether its rows have event times. With False, those that they have are
            left out.

    Raises:
        InvalidFlowError: It cannot be the name of a channel.
    """
    return JoinedChannel(store=store, name=check_name("channel", name), timed=timed)
