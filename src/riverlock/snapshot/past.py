"""What a store knows about its own past, and how a sink's memory is compared with it.

Numbers of runs and epochs repeat if a store is put back from a backup, or if a copy of
it runs. So a sink remembers an epoch by the run that decided it and by what was
decided, and a run by its token (format §8.3).
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import msgspec

from riverlock.core.errors import SnapshotError
from riverlock.snapshot.format.sealed import checksum
from riverlock.snapshot.format.store_layout import epoch_of
from riverlock.snapshot.timeline import deciders, given, is_restored, spans
from riverlock.snapshot.verbs.restore import is_open

if TYPE_CHECKING:
    from riverlock.snapshot.catalog import Catalog
    from riverlock.snapshot.format.records import Manifest, SinkOutput

__all__ = ["Claim", "Commit", "Past", "StorePast", "commit_of", "digest_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """A run that has opened a sink; older writers have left no token."""

    run: int
    token: str = ""

    def matches(self, other: Claim) -> bool:
        """Tell whether both are the same run, as far as is known."""
        is_told = bool(self.token and other.token)
        return self.run == other.run and (not is_told or self.token == other.token)


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """An epoch as a sink remembers it; what older writers have not left is empty."""

    epoch: int
    run: str = ""  # the token of the run that decided it
    digest: str = ""  # of what was decided for the sink

    def matches(self, other: Commit) -> bool:
        """Tell whether both are the same epoch, as far as is known."""
        return self.epoch == other.epoch and all(
            not a or not b or a == b
            for a, b in ((self.run, other.run), (self.digest, other.digest))
        )


def digest_of(tokens: tuple[Any, ...]) -> str:
    """Return what distinguishes the tokens of an epoch from all others.

    They come from tasks, or from a manifest, which has an order of its own.
    """
    return checksum(msgspec.json.encode(tokens, order="deterministic"))


def commit_of(epoch: int, output: SinkOutput) -> Commit:
    """Return what a sink must remember about an epoch."""
    return Commit(epoch=epoch, run=output.run, digest=digest_of(output.tokens))


class Past:
    """The past of a store that knows nothing: whatever a sink remembers may be true."""

    def has_run(self, claim: Claim) -> bool:
        """Tell whether a run belongs to this store."""
        del claim
        return True

    def has_token(self, token: str) -> bool:
        """Tell whether a run of this store has a token."""
        del token
        return True

    def has(self, commit: Commit, sink: str) -> bool:
        """Tell whether this store has decided an epoch, undone since or not."""
        del commit, sink
        return True

    def commit(self, epoch: int, sink: str) -> Commit | None:
        """Return what this store has decided for a sink; None: it cannot tell."""
        del epoch, sink
        return None

    def leads_here(self, epoch: int) -> bool:
        """Tell whether the newest epoch continues from this one."""
        del epoch
        return True

    def output(self, sink: str) -> SinkOutput | None:
        """Return what the newest epoch has for a sink; None: the sink is new."""
        del sink
        return None

    def expected(self, sink: str, place: str) -> int | None:
        """Return the newest epoch that a sink must have when it is opened.

        None: it may lack any.

        Args:
            sink: The sink.
            place: Where it is opened, as manifests have it.
        """
        del sink, place
        return None

    def reached(self, run: int) -> int | None:
        """Return the newest epoch that sinks may have from runs up to this one.

        None: unknown.
        """
        del run
        return None

    @property
    def newest(self) -> int | None:
        """The newest epoch, -1 before the first; None: it is not known."""
        return None


@dataclass(frozen=True)
class StorePast(Past):
    """The past of a store, when a run begins."""

    catalog: Catalog
    manifest: Manifest | None  # the newest, as it is in the store

    @property
    def newest(self) -> int | None:
        """The newest epoch, -1 before the first."""
        return -1 if self.manifest is None else self.manifest.epoch

    def has_run(self, claim: Claim) -> bool:
        """Tell whether a run belongs to this store."""
        with suppress(SnapshotError):
            found = self.catalog.run(claim.run)
            return found is not None and claim.token in ("", found.token)
        return not claim.token

    def has_token(self, token: str) -> bool:
        """Tell whether a run of this store has a token; reads all claims if need be."""
        history = () if self.manifest is None else self.manifest.history
        return any(known == token for _, known in history) or token in self._tokens

    def has(self, commit: Commit, sink: str) -> bool:
        """Tell whether this store has decided an epoch, undone since or not."""
        if self.manifest is None or commit.epoch > self.manifest.epoch:
            return False
        known = self.commit(commit.epoch, sink)
        if known is not None:
            return known.matches(commit)
        tokens = deciders(self.manifest, commit.epoch)
        if not commit.run or tokens is not None:
            return not commit.run or commit.run in (tokens or ())
        return self.has_token(commit.run)

    def commit(self, epoch: int, sink: str) -> Commit | None:
        """Return what this store has decided for a sink; None: it cannot tell."""
        decided = self._decided(epoch)
        output = None if decided is None else decided.outputs.get(sink)
        return None if output is None else commit_of(epoch, output)

    def leads_here(self, epoch: int) -> bool:
        """Tell whether the newest epoch continues from this one."""
        ours = [] if self.manifest is None else spans(self.manifest)
        return any(first <= epoch <= last for first, last in ours)

    def output(self, sink: str) -> SinkOutput | None:
        """Return what the newest epoch has for a sink; None: the sink is new."""
        return None if self.manifest is None else self.manifest.outputs.get(sink)

    def expected(self, sink: str, place: str) -> int | None:
        """Return the newest epoch that a sink must have when it is opened."""
        output = self.output(sink)
        if output is None or output.replaces:
            return None  # the newest has all rows
        assert self.manifest is not None
        # The newest may wait for its commit; elsewhere it waits no more if it is known
        # to be where it was decided to go.
        is_left = output.place != place and not is_open(self.catalog, self.manifest)
        return given(self.manifest, sink) if is_left else output.before

    def reached(self, run: int) -> int | None:
        """Return the newest epoch that sinks may have from runs up to this one."""
        if self.manifest is None or run >= self.manifest.run:
            return self.newest
        # A restore opens no sinks; its number may be one that they know.
        before = self._decided(self.manifest.epoch - 1)
        is_next = is_restored(self.manifest) and before is not None
        return before.epoch if is_next and before and run >= before.run else None

    def _decided(self, epoch: int) -> Manifest | None:
        assert self.manifest is not None
        if epoch == self.manifest.epoch:
            return self.manifest
        with suppress(SnapshotError):
            return self.catalog.manifest(epoch)
        return None

    @cached_property
    def _tokens(self) -> set[str]:
        found = set()
        for entry in self.catalog.storage.list(self.catalog.paths.runs):
            with suppress(SnapshotError, ValueError):
                run = self.catalog.run(epoch_of(entry.path))
                found |= set() if run is None else {run.token}
        return found
