"""Errors of sources and sinks."""

from __future__ import annotations

from riverlock.core.errors.root import RiverlockError

__all__ = [
    "CommitRejectedError",
    "CommitUnknownError",
    "ForeignEpochError",
    "SinkError",
    "SinkUnavailableError",
    "SourceError",
    "SourceUnavailableError",
]


class SourceError(RiverlockError):
    """An input cannot be read as recorded."""

    code = "SOURCE"
    source: str
    what: str

    def __init__(self, source: str, *, what: str, hint: str = "") -> None:
        """Name the source and what is wrong with its data."""
        super().__init__(
            f"could not read source {source!r}: {what}",
            hint=hint,
            source=source,
            what=what,
        )


class SourceUnavailableError(SourceError):
    """The input's system does not answer; nothing is lost by waiting for it."""

    code = "SOURCE_UNAVAILABLE"

    def __init__(self, source: str, *, what: str) -> None:
        """Name the source, its system and what was noticed."""
        super().__init__(
            source, what=what, hint="nothing is lost; a run continues when it answers"
        )


class SinkError(RiverlockError):
    """A sink did not do its part of the commit."""

    code = "SINK"
    exit_code = 5
    sink: str
    epoch: int | None
    what: str

    def __init__(self, sink: str, *, epoch: int | None, what: str) -> None:
        """Name the sink, the epoch and the trouble."""
        at = "" if epoch is None else f" epoch {epoch}"
        super().__init__(
            f"sink {sink!r} could not commit{at}: {what}",
            sink=sink,
            epoch=epoch,
            what=what,
        )


class SinkUnavailableError(SinkError):
    """The sink's system does not answer; nothing is lost by waiting for it."""

    code = "SINK_UNAVAILABLE"


class CommitRejectedError(SinkError):
    """The sink refused, finally."""

    code = "COMMIT_REJECTED"


class ForeignEpochError(CommitRejectedError):
    """The sink has an epoch that this store has not decided."""

    code = "FOREIGN_EPOCH"
    epoch: int
    place: str
    newest: int | None

    def __init__(
        self, sink: str, *, place: str, epoch: int, newest: int | None
    ) -> None:
        """Name the sink, its place, the epoch there, and the newest of the store."""
        known = "" if newest is None else f" (its newest is {newest})"
        what = (
            f"{place} has an epoch {epoch} that this store has not decided{known}: the"
            " store was put back from a backup, or a copy of it has written there"
        )
        RiverlockError.__init__(
            self,
            f"sink {sink!r} cannot continue: {what}",
            hint="nothing was written; continue with the copy of the store that wrote"
            " it, or put back what the sink writes to as well, to the time of the"
            " store's backup, or leave those rows and write elsewhere: another place"
            " and another uid",
            sink=sink,
            place=place,
            epoch=epoch,
            newest=newest,
            what=what,
        )


class CommitUnknownError(SinkError):
    """The sink did not answer; ask it before trying again."""

    code = "COMMIT_UNKNOWN"
