"""Reads a channel: an offset is a position among the writer's epochs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from riverlock.connectors.channel.rows import Shares, file_rows
from riverlock.connectors.channel.written import Step, Written
from riverlock.core.errors import SourceError, SourceUnavailableError
from riverlock.core.hidden_columns import TIME
from riverlock.core.types import schema_of
from riverlock.snapshot.catalog import Catalog
from riverlock.snapshot.channel_files import channel_file, pays_by_group

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from riverlock.connectors.channel.ends import ChannelSource, LoopSource
    from riverlock.coordinator.resets.rules import Reset
    from riverlock.core.types import Schema
    from riverlock.snapshot.channel_files import ChannelFile
    from riverlock.storage.base import Storage

__all__ = ["ChannelReader", "ChannelSplit"]

# Files per epoch: each is a task at most, and an entry of a plan.
_MAX_FILES = 1_024


@dataclass(frozen=True)
class ChannelSplit:
    """A file that a task of the writer has staged."""

    storage: Storage
    file: ChannelFile
    uid: str
    columns: pa.Schema

    def table(self) -> pa.Table:
        """Read it.

        Raises:
            SourceError: The file is not what the manifest says.
        """
        return file_rows(self.storage, self.file, self.uid, self.columns)


class ChannelReader:
    """Follows the writer, epoch by epoch."""

    gives_positions = True
    can_read_ahead = True
    is_repeatable = True

    def __init__(
        self, source: ChannelSource | LoopSource, uid: str, storage: Storage
    ) -> None:
        """Read nothing yet; the columns come with ``take_columns``."""
        self._source, self._uid, self._storage = source, uid, storage
        catalog = Catalog(storage, source.writer)
        self._written = Written(catalog, source.name, uid)
        self._schema: Schema | None = source.schema
        self._start: Any = None
        self._is_over: Callable[[], bool] = lambda: True

    @property
    def channel(self) -> str:
        """The name of the channel."""
        return self._source.name

    @property
    def key(self) -> str:
        """What tells it from other channels that a region reads."""
        return self.channel

    @property
    def writer(self) -> str:
        """The region that fills it."""
        return self._source.writer

    @property
    def schema(self) -> Schema:
        """The columns that users see: from the writer, or from its newest epoch.

        Raises:
            SourceUnavailableError: The writer runs elsewhere, and has told nothing yet.
        """
        if self._schema is None:
            self._schema = self._told_columns()
        return self._schema

    def _told_columns(self) -> Schema:
        newest = self._written.catalog.newest()
        output = None if newest is None else newest.outputs.get(self.channel)
        if output is not None and output.columns is not None:
            return schema_of(output.columns.ddl)
        has_epochs = "no epoch" if newest is None else "no epoch that fills it"
        raise SourceUnavailableError(
            self._uid,
            what=f"channel {self.channel!r} has no columns yet: region"
            f" {self.writer!r}, which fills it, does not run here and has {has_epochs}"
            f" in the store; run it, in any process",
        )

    def take_columns(self, schema: Schema) -> None:
        """Take the columns that the writer was found to give."""
        self._schema = schema

    def follow(self, is_over: Callable[[], bool]) -> None:
        """Take more for possible until the writer, which runs beside us, is over."""
        self._is_over = is_over

    def go_by(self, own: int, taken: Reset | None) -> None:
        """Read no further than resets of the flow allow.

        Args:
            own: The number of the last one that the region has taken up.
            taken: That one.
        """
        self._written.go_by(own, taken)

    @property
    def is_final(self) -> bool:
        """Whether what is there is all that this run is to take."""
        return self._is_over()

    def initial(self) -> Any:
        """Begin with the writer's first epoch."""
        return self._at(0)

    def latest(self, start: Any) -> Any:
        """Return the position after the last epoch that says anything new.

        Epochs without rows do not count, unless time has moved on or a marker follows
        them: two regions that read each other would otherwise never rest.
        """
        position = self.position(start)
        self._start = start
        self._written.look(position, start.get("token", ""))
        steps = self._written.between(position, self._written.end)
        known, last = self._written.watermark_us(position), position
        for step in steps:
            if step.rows or step.markers or step.watermark_us != known:
                known, last = step.watermark_us, step.epoch + 1
        return self._at(last)

    def past_gaps(self, offset: Any, end: int) -> Any:
        """Return an offset behind epochs without rows, at most at that epoch.

        An epoch that is due for another reason takes them along: retention keeps what
        is not read.
        """
        first = self.position(offset)
        steps = self._written.between(first, min(self._written.end, end))
        with_rows = (step.epoch for step in steps if step.rows)
        return self._at(next(with_rows, max(first, min(self._written.end, end))))

    def advance(self, start: Any, latest: Any, max_rows: int) -> Any:
        """Take epochs until they hold ``max_rows``; at least one."""
        first, rows, files = self.position(start), 0, 0
        end = first
        for step in self._written.between(first, self.position(latest)):
            files += len(step.files)
            if rows and (rows + step.rows > max_rows or files > _MAX_FILES):
                break
            rows += step.rows
            end = step.epoch + 1
        return start if end == first else self._at(end)

    @property
    def end(self) -> int:
        """The first epoch of the writer that was not decided when we last looked."""
        return self._written.end

    @property
    def markers(self) -> Mapping[int, int]:
        """The epoch of the writer that bears the marker of each cut in sight."""
        return self._written.markers

    def until(self, latest: Any, end: int) -> Any:
        """Return an offset, at most at that epoch of the writer."""
        return latest if self.position(latest) <= end else self._at(end)

    def has_ended(self, start: Any, latest: Any) -> bool:
        """Never by itself: the writer tells the end of time with its watermark."""
        return False

    def rows_between(self, start: Any, end: Any) -> int:
        """Return the rows of the epochs between."""
        return sum(step.rows for step in self._steps(start, end))

    def watermark_us(self, start: Any, end: Any) -> int | None:
        """Return the watermark that holds while a range is read.

        It is the one before the rows of the range; if there are none, the newest.
        """
        at = start if self.rows_between(start, end) else end
        return self._written.watermark_us(self.position(at))

    def read(self, start: Any, end: Any) -> Any:
        """Return the rows as a table."""
        return self.table(start, end)

    def table(self, start: Any, end: Any) -> pa.Table:
        """Return the rows of a range, in their order."""
        tables = [split.table() for split in self.splits(start, end, 1)]
        return pa.concat_tables([self._arrow().empty_table(), *tables])

    def splits(self, start: Any, end: Any, wanted: int) -> list[ChannelSplit]:
        """Return the files of a range."""
        columns = self._arrow()
        return [
            ChannelSplit(self._storage, file, self._uid, columns)
            for file in self.files(start, end)
        ]

    def files(self, start: Any, end: Any) -> list[ChannelFile]:
        """Return the files of a range, in their order."""
        steps = self._steps(start, end)
        return [channel_file(token) for step in steps for token in step.files]

    def shares(
        self, start: Any, end: Any, keys: Schema, *, tasks: int, key_groups: int
    ) -> Shares | None:
        """Return what lets each task read the rows of its own key groups.

        Args:
            start: The offset at which the range begins.
            end: Where it ends.
            keys: The columns by which the tasks are keyed.
            tasks: How many tasks share the key groups.
            key_groups: How many there are.

        Returns:
            None if rows do not stand by these keys, or tasks would read too much: then
            the range must be read whole, and its rows exchanged.
        """
        steps = [step for step in self._steps(start, end) if step.files]
        files = self.files(start, end)
        if not keys.fields or any(step.keys != keys.ddl for step in steps):
            return None
        rows = (file.rows for file in files)
        if not pays_by_group(rows, tasks=tasks, key_groups=key_groups):
            return None
        return Shares(
            storage=self._storage,
            uid=self._uid,
            columns=self._arrow(),
            files=tuple(files),
            tasks=tasks,
            key_groups=key_groups,
        )

    def _arrow(self) -> pa.Schema:
        fields = list(self.schema.to_arrow())
        if self._source.has_time:
            fields.append(pa.field(TIME, pa.int64()))
        return pa.schema(fields)

    def _steps(self, start: Any, end: Any) -> list[Step]:
        return self._written.between(self.position(start), self.position(end))

    def _at(self, epoch: int) -> Any:
        # Where we are stays as it is: what led there may have been deleted since.
        if self._start is not None and self.position(self._start) == epoch:
            return self._start
        place = {"region": self.writer, "channel": self.channel, "epoch": epoch}
        token = self._written.decider(epoch - 1)
        return {**place, "token": token} if token else place

    def check_place(self, offset: Any) -> None:
        """Check that the writer still has what was read of it.

        Raises:
            SourceError: It has not, or it is another channel.
        """
        self._written.look(self.position(offset), offset.get("token", ""))

    def position(self, offset: Any) -> int:
        """Return the first epoch of the writer that is not read at an offset.

        Raises:
            SourceError: The offset belongs to another channel.
        """
        if offset["channel"] != self.channel or offset["region"] != self.writer:
            raise SourceError(
                self._uid,
                what=f"it was read up to an epoch of channel {offset['channel']!r} of"
                f" region {offset['region']!r}, and reads {self._source.place} now",
                hint="give region() its uid back, or restore all regions",
            )
        position: int = offset["epoch"]
        return position

    def observed(self, rows: int) -> dict[str, float]:
        """Nothing to learn."""
        return {}

    def close(self) -> None:
        """Nothing is open."""
