"""What the writer of a channel has decided, as a reader sees it.

A position is the first epoch of the writer that is not read yet, and the token of the
run that decided the one before: a writer that was put back from a backup decides the
same numbers again. Manifests are immutable, so each is read once; a new one is found by
asking for the next number.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from riverlock.coordinator.resets.rules import (
    Reset,
    Writer,
    held_at,
    is_ahead,
    resumed_at,
)
from riverlock.core.errors import SourceError, StorageNotFoundError
from riverlock.snapshot.format.closed_numbers import CLOSED
from riverlock.snapshot.format.records import Manifest
from riverlock.snapshot.format.sealed import unseal
from riverlock.snapshot.timeline import Span, decider, deciders, spans

if TYPE_CHECKING:
    from riverlock.snapshot.catalog import Catalog

__all__ = ["Step", "Written"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """What one epoch of the writer adds to a channel."""

    epoch: int
    files: tuple[dict[str, Any], ...] = ()
    rows: int = 0
    # The columns by whose key groups rows stand in the files, as DDL.
    keys: str = ""
    watermark_us: int | None = None
    # Cuts whose markers come after its rows.
    markers: tuple[int, ...] = ()
    history: tuple[tuple[int, str], ...] = ()
    timeline: tuple[Span, ...] = ()


@dataclass
class Written:
    """The steps of a channel.

    Attributes:
        catalog: The writer's region.
        channel: The name of the channel: the uid of the writer's output.
        reader: Who reads, for errors.
        own: The number of the reset that the reader has taken up; None: resets of the
            writer do not concern it.
        taken: That reset, if the writer may be behind it still.
    """

    catalog: Catalog
    channel: str
    reader: str
    own: int | None = None
    taken: Reset | None = None
    # None: the number is taken, and no epoch has it.
    _steps: dict[int, Step | None] = field(default_factory=dict)
    # The first number that was not decided when we last looked.
    _next: int | None = None
    _newest: Step | None = None
    # Whether the writer has taken up a reset that the reader does not know of yet.
    _is_behind: bool = False

    def look(self, position: int, token: str = "") -> None:
        """Read what was decided since; forget what is before the position.

        Args:
            position: The first epoch that is not read yet.
            token: Of the run that decided the one before; empty: it is not known.

        Raises:
            SourceError: Rows that were not read yet are gone, or rows that were read
                have been undone, or are not of this writer as it is now.
        """
        if self._next is None:
            self._next = position
            # It may be deleted, since it was read; its marker is where we are.
            if self._is_there(position - 1):
                self._newest = self._steps[position - 1]
        held = held_at(self.taken, self.catalog.region, position)
        self._read_on(held)
        if held is not None:
            if self._next < held:  # it was in flight when the cut was taken
                raise self._gone(self._next)
            self._resume(held)
        if self._next != held:
            self._check_no_gap(self._next)
        for epoch in [e for e in self._steps if e < position - 1]:
            del self._steps[epoch]
        self._check_has(position - 1, token)
        self._check_not_undone(position)

    def go_by(self, own: int, taken: Reset | None) -> None:
        """Take it that the reader has taken up a reset; what was seen may not count."""
        if own != self.own:
            self._steps.clear()
            self._next, self._newest, self._is_behind = None, None, False
        self.own, self.taken = own, taken

    def _read_on(self, until: int | None = None) -> None:
        """Read what is there, at most up to an epoch."""
        assert self._next is not None
        # Asked for by number: a listing may miss what is decided meanwhile.
        while self._next != until and self._is_there(self._next):
            self._newest = self._steps[self._next] or self._newest
            self._next += 1

    def _resume(self, held: int) -> None:
        """Go on behind the cut that we went back to, once the writer has done so too.

        What it had decided until then was undone, and may have been deleted.
        """
        assert self._next is not None
        if self._next == held and (epochs := self.catalog.epochs()):
            newest = self.catalog.stored(epochs[-1])
            writer = Writer(
                epoch=newest.epoch,
                reset=newest.reset,
                timeline=tuple(spans(newest)),
            )
            resumed = resumed_at(self.own or 0, held, writer)
            if resumed is None:
                return
            self._steps |= dict.fromkeys(range(held, resumed))
            self._next = resumed
        self._read_on()

    @property
    def end(self) -> int:
        """The first epoch that was not decided when we last looked."""
        return self._next or 0

    def decider(self, epoch: int) -> str:
        """Return the token of the run that decided an epoch, if that is known."""
        step = self._steps[epoch] if epoch >= 0 and self._is_there(epoch) else None
        return "" if step is None else decider(step)

    @property
    def markers(self) -> dict[int, int]:
        """The epoch that bears the marker of each cut, of those in sight."""
        return {
            cut: step.epoch
            for step in self._steps.values()
            if step is not None and self._counts(step)
            for cut in step.markers
        }

    def between(self, start: int, end: int) -> list[Step]:
        """Return the steps of a range, without those that a restore has undone.

        Raises:
            SourceError: One is gone.
        """
        found = []
        for epoch in range(start, end):
            if not self._is_there(epoch):
                raise self._gone(epoch)
            step = self._steps[epoch]
            if step is not None and self._counts(step):
                found.append(step)
        return found

    def watermark_us(self, position: int) -> int | None:
        """Return what the writer said of time before a position."""
        for epoch in range(position - 1, -1, -1):
            if not self._is_there(epoch):
                return None
            step = self._steps[epoch]
            if step is not None and self._counts(step):
                return step.watermark_us
        return None

    def _is_there(self, epoch: int) -> bool:
        """Tell whether an epoch's number is taken; have its step from then on."""
        if epoch in self._steps:
            return True
        path = self.catalog.paths.manifest(epoch)
        try:
            data = self.catalog.storage.get(path)
        except StorageNotFoundError:
            return False
        if data == CLOSED:
            self._steps[epoch] = None
            return True
        manifest = unseal(data, Manifest, path=path)
        if self.own is not None and is_ahead(self.own, manifest.reset):
            self._is_behind = True
            return False
        self._steps[epoch] = _step(manifest, self.channel)
        return True

    def _counts(self, step: Step) -> bool:
        newest = self._newest or step
        return any(a <= step.epoch <= b for a, b in newest.timeline)

    def _check_no_gap(self, epoch: int) -> None:
        """Refuse to wait for an epoch that was there once: numbers have no gaps."""
        if self._is_behind:
            return
        if self._newest is None:
            is_later = max(self.catalog.epochs(), default=-1) > epoch
        else:
            path = self.catalog.paths.manifest(epoch + 1)
            is_later = self.catalog.storage.exists(path)
        # Asked again: it may have been decided between the two questions.
        if is_later and not self._is_there(epoch):
            raise self._gone(epoch)

    def _gone(self, epoch: int) -> SourceError:
        return SourceError(
            self.reader,
            what=f"epoch {epoch} of region {self.catalog.region!r}, which it has not"
            " read, is gone",
            hint="nothing was changed; put back a backup of the whole store, or restore"
            " all regions to one snapshot",
        )

    def _check_has(self, last: int, token: str) -> None:
        """Refuse a writer that has not decided what was read: it was put back."""
        if last < 0:
            return
        newest = self._newest
        if newest is None or newest.epoch < last:
            found = "which has no such epoch"
        else:
            known = deciders(newest, last)
            if not token or known is None or token in known:
                return
            found = "which has another epoch of that number"
        raise SourceError(
            self.reader,
            what=f"it has read epoch {last} of region {self.catalog.region!r},"
            f" {found}: a backup of that region alone was put back, or one that was"
            " made while the flow ran",
            hint="nothing was changed; put back a backup of the whole store that was"
            " made while nothing ran, or restore all regions to one snapshot",
        )

    def _check_not_undone(self, position: int) -> None:
        last, newest = position - 1, self._newest
        if last < 0 or newest is None or last > newest.epoch:
            return
        if any(a <= last <= b for a, b in newest.timeline):
            return
        raise SourceError(
            self.reader,
            what=f"it has read epoch {last} of region {self.catalog.region!r}, which"
            " was undone since: that region was restored without this one",
            hint="nothing was changed; restore all regions to one snapshot",
        )


def _step(manifest: Manifest, channel: str) -> Step:
    output = manifest.outputs.get(channel)
    columns = None if output is None else output.columns
    return Step(
        epoch=manifest.epoch,
        files=() if output is None else output.tokens,
        rows=0 if output is None else output.rows,
        keys="" if columns is None else columns.keys,
        watermark_us=None if output is None else output.watermark_us,
        markers=manifest.markers,
        history=manifest.history,
        timeline=tuple(spans(manifest)),
    )
