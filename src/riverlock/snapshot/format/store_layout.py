"""Where things are in a store (format §1); names sort in time order."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from riverlock.storage.base import Entry

__all__ = [
    "FLOW",
    "RegionPaths",
    "abandoned_path",
    "begun_path",
    "channel_path",
    "cut_path",
    "decided_path",
    "drained_path",
    "epoch_of",
    "fork_path",
    "lease_path",
    "number_in",
    "numbered",
    "parent_path",
    "reader_path",
    "records",
    "reset_path",
    "sink_path",
    "snapshot_path",
]

FLOW = "flow.json"
SNAPSHOTS = "snapshots/"
LEASES = "leases/"
FORKS = "forks/"
PARENTS = "parents/"
# What is being forked into a store that has no flow yet.
FORKING = "fork.json"
CHANNELS = "channels/"
CUTS = "cuts/"
ABANDONED = f"{CUTS}abandoned/"
# The flows that read channels of this one.
READERS = "readers/"
# What says that all regions go back to a snapshot; and what older writers wrote.
RESETS = "resets/"
RESTORING = "restoring.json"
REGIONS = "regions/"
SINKS = "sinks/"

# The name that a number has: with another one, a file is none of ours.
_NUMBERED = re.compile(r"(\d{12,})\.json")
_BEGINS = re.compile(r"\d{12,}")
_RECORD = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*\.json")


@dataclass(frozen=True, slots=True)
class RegionPaths:
    """The paths of one region, relative to the store."""

    region: str

    @property
    def root(self) -> str:
        """Everything of the region."""
        return f"regions/{self.region}/"

    @property
    def epochs(self) -> str:
        """The folder of manifests."""
        return f"{self.root}epochs/"

    @property
    def runs(self) -> str:
        """The folder of run numbers."""
        return f"{self.root}runs/"

    @property
    def state(self) -> str:
        """The folder of state files."""
        return f"{self.root}state/"

    @property
    def lists(self) -> str:
        """The folder of lists of state files."""
        return f"{self.root}lists/"

    @property
    def staged(self) -> str:
        """The folder of what tasks hand to sinks and later stages."""
        return f"{self.root}staged/"

    @property
    def sources(self) -> str:
        """The folder of lists that the offsets of sources refer to."""
        return f"{self.root}sources/"

    @property
    def status(self) -> str:
        """The live status, overwritten after each epoch."""
        return f"{self.root}status.json"

    @property
    def owner(self) -> str:
        """The heartbeat of the run that owns the region."""
        return f"{self.root}owner.json"

    @property
    def circle(self) -> str:
        """How the region stands among those that it feeds and that feed it."""
        return f"{self.root}circle.json"

    @property
    def requests(self) -> str:
        """The folder of requests to the flow."""
        return f"{self.root}requests/"

    @property
    def expiring(self) -> str:
        """The folder of what says that epochs are being deleted."""
        return f"{self.root}expiring/"

    @property
    def starts(self) -> str:
        """The folder of starts that are in progress."""
        return f"{self.root}starting/"

    def start(self, name: str) -> str:
        """The announcement of a start."""
        return f"{self.starts}{name}.json"

    @property
    def merged(self) -> str:
        """The folder of what says which merged files wait for an epoch."""
        return f"{self.root}merged/"

    @property
    def channels(self) -> str:
        """The folder of the rows that other regions read."""
        return f"{self.root}channels/"

    def channel_file(self, channel: str, epoch: int, attempt: str) -> str:
        """A file of a channel: the attempt makes the name unique for ever."""
        return f"{self.channels}{channel}/{epoch:012d}-{attempt}.parquet"

    def request(self, number: int) -> str:
        """One request."""
        return f"{self.requests}{number:012d}.json"

    def manifest(self, epoch: int) -> str:
        """The manifest of an epoch."""
        return f"{self.epochs}{epoch:012d}.json"

    def run(self, number: int) -> str:
        """The claim of a run number."""
        return f"{self.runs}{number:012d}.json"

    def state_file(self, uid: str, epoch: int, attempt: str) -> str:
        """A state file: the attempt makes the name unique for ever."""
        return f"{self.state}{uid}/{epoch:012d}-{attempt}.parquet"

    def file_list(self, uid: str, epoch: int, attempt: str) -> str:
        """A list of state files: the attempt makes the name unique for ever."""
        return f"{self.lists}{uid}/{epoch:012d}-{attempt}.json"


def epoch_of(path: str) -> int:
    """Return the number in a file name such as ``000000000042.json``."""
    return int(path.rsplit("/", 1)[-1].partition(".")[0].partition("-")[0])


def number_in(name: str) -> int | None:
    """Return the number that a name begins with; None: the name is not ours."""
    found = _BEGINS.match(name)
    return None if found is None else int(found[0])


def records(entries: Iterable[Entry]) -> Iterator[Entry]:
    """Yield the files that can be records, by their names; others lie beside them."""
    for entry in entries:
        if _RECORD.fullmatch(entry.path.rpartition("/")[2]):
            yield entry


def numbered(entries: Iterable[Entry]) -> list[tuple[int, Entry]]:
    """Return records that are named by a number, in order, each with its number.

    Other files may lie beside them, from an editor, a sync tool, a copy by hand. Their
    names mean nothing to us.
    """
    found = [(_NUMBERED.fullmatch(e.path.rpartition("/")[2]), e) for e in entries]
    return sorted(((int(m[1]), e) for m, e in found if m), key=lambda pair: pair[0])


def snapshot_path(name: str) -> str:
    """The record of a named snapshot."""
    return f"{SNAPSHOTS}{name}.json"


def cut_path(number: int) -> str:
    """The record of a cut that was asked for."""
    return f"{CUTS}{number:012d}.json"


def drained_path(number: int) -> str:
    """What says that all channels were empty for a cut."""
    return f"{CUTS}drained/{number:012d}.json"


def abandoned_path(number: int) -> str:
    """What says that a cut was given up."""
    return f"{ABANDONED}{number:012d}.json"


def begun_path(number: int) -> str:
    """What says that all flows of a cut know of it."""
    return f"{CUTS}begun/{number:012d}.json"


def decided_path(cut: str) -> str:
    """What became of a cut over several flows, in the store of one of them."""
    return f"{CUTS}decided/{cut}.json"


def reset_path(number: int) -> str:
    """The record that all regions go back."""
    return f"{RESETS}{number:012d}.json"


def reader_path(flow: str, uid: str) -> str:
    """The record of another flow's source that reads a channel of this store."""
    return f"{READERS}{flow}/{uid}.json"


def sink_path(uid: str) -> str:
    """What a sink remembers about where it writes."""
    return f"{SINKS}{uid}.json"


def lease_path(lease: str) -> str:
    """The record of a lease."""
    return f"{LEASES}{lease}.json"


def fork_path(flow: str) -> str:
    """The record of a fork, in the store it was forked from."""
    return f"{FORKS}{flow}.json"


def parent_path(flow: str) -> str:
    """The record of a store whose files a fork refers to."""
    return f"{PARENTS}{flow}.json"


def channel_path(name: str) -> str:
    """The folder of a channel."""
    return f"{CHANNELS}{name}/"
