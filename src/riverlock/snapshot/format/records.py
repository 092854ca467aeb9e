"""The records of the store, one to one with ``docs/format.md``.

JSON on disk, msgspec structs here. Unknown fields are ignored on reading, so that a
newer minor writer stays readable; a newer ``format`` number is refused (catalog).
"""

from __future__ import annotations

from typing import Any

import msgspec

from riverlock.core.guarantees import EXACTLY_ONCE

__all__ = [
    "FORMAT",
    "Change",
    "ChannelColumns",
    "Closed",
    "CutProposal",
    "FileList",
    "Flow",
    "Footer",
    "ForkRecord",
    "InFlight",
    "InputRange",
    "JointCut",
    "LeaseRecord",
    "ListedFiles",
    "Manifest",
    "Meaning",
    "Named",
    "OperatorState",
    "Origin",
    "Parameter",
    "PartitionTime",
    "Request",
    "Rescale",
    "Run",
    "SinkOutput",
    "Start",
    "StateFile",
    "Stop",
    "TimerHeads",
    "Variable",
    "Watermark",
]

FORMAT = 1
# Files of a state may be in another store (§6.2).
PARENTS_FEATURE = "parents"
# The flow has several regions, joined by channels (§7.2).
REGIONS_FEATURE = "regions"
# Manifests may refer to lists of state files (§4.6).
LISTS_FEATURE = "lists"
JOINED_FEATURE = "joined"  # channels and snapshots with other flows (§7.2)
RESETS_FEATURE = "resets"  # all regions may have gone back while they ran (§6.5)
# The kind of an output that another region reads.
CHANNEL = "channel"
# The place of one that other flows may read.
PUBLISHED = "published"


class Record(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Base of all records: immutable, keyword-only, defaults left out."""


class InFlight(Record, frozen=True):
    """Epochs of a channel's writer that are in a cut, and not yet read in it (§6.4)."""

    channel: str
    writer: str
    reader: str
    first: int
    end: int
    rows: int = 0
    bytes: int = 0
    # The id of the flow that reads, if it is another one.
    flow: str = ""


class Origin(Record, frozen=True):
    """Where a fork comes from; also ``parents/<flow>.json`` (§6.2)."""

    flow: str
    store: str
    region: str
    epoch: int
    # Of a flow with several regions: the epoch of each, and what was between them.
    regions: dict[str, int] = {}
    in_flight: tuple[InFlight, ...] = ()

    @property
    def epochs(self) -> dict[str, int]:
        """The epoch of each region."""
        return self.regions or {self.region: self.epoch}


class Flow(Record, frozen=True):
    """``flow.json``: written once, when the store is made (format §2)."""

    format: int
    name: str
    id: str
    key_groups: int
    created_us: int
    features: tuple[str, ...] = ()
    # Of a fork: what it began with.
    origin: Origin | None = None


class Run(Record, frozen=True):
    """``runs/<n>.json``: whoever created the file of a run number owns it (§3)."""

    run: int
    host: str
    pid: int
    token: str
    started_us: int
    # Tells two processes with the same pid apart; empty where the system cannot.
    process: str = ""
    # Whether no earlier run can decide an epoch any more.
    is_alone: bool = False


class Closed(Record, frozen=True):
    """``epochs/<n>.json`` in place of a manifest: the number stays taken (§6.3)."""

    closed: bool


class Start(Record, frozen=True):
    """``starting/<id>.json``: a start that has no run yet announces itself (§3.2)."""

    id: str
    host: str
    pid: int
    started_us: int
    process: str = ""
    # What it waits for, since when, and when it last said so.
    waiting: str | None = None
    waiting_since_us: int | None = None
    seen_us: int | None = None


class Footer(Record, frozen=True):
    """The end of a state file, which says where its parts are (§5.6)."""

    bytes: int
    checksum: str


class StateFile(Record, frozen=True):
    """A Parquet file of state entries that a manifest refers to (§5)."""

    path: str
    first_epoch: int
    last_epoch: int
    # The key groups it may hold entries of: first inclusive, last exclusive.
    first_group: int
    end_group: int
    rows: int
    bytes: int
    checksum: str
    deletes: int = 0
    # Holds broadcast entries, which every task needs whatever its range.
    shared: bool = False
    # Of a file in several parts, which can be read one by one.
    footer: Footer | None = None


class FileList(Record, frozen=True):
    """A file beside the manifest that lists state files of one operator (§4.6)."""

    path: str
    # The epochs and key groups of its files, as a state file has them.
    first_epoch: int
    last_epoch: int
    first_group: int
    end_group: int
    # How many state files it lists.
    files: int
    bytes: int
    checksum: str
    shared: bool = False


class ListedFiles(Record, frozen=True):
    """``lists/<uid>/<n>-<attempt>.json``: what a list says (§4.6)."""

    files: tuple[StateFile, ...]


class Variable(Record, frozen=True):
    """A declared state variable (§5.2)."""

    kind: str  # value, list, map, reducing
    type: str
    key: str | None = None
    scope: str = "key"  # key, group, broadcast
    ttl_us: int | None = None
    # What reading it gives where it is not set, as JSON.
    default: Any = None


class TimerHeads(Record, frozen=True):
    """The earliest pending timers: an epoch is due when time reaches them."""

    event_us: int | None = None
    processing_us: int | None = None


class Parameter(Record, frozen=True):
    """A declared parameter, and what was set (§4.4)."""

    type: str  # bool, int, float, str, decimal, list, dict
    default: Any  # of the code that ran the epoch
    # What was set, and the first epoch that had it.
    value: Any = None
    since: int | None = None
    doc: str = ""

    @property
    def in_force(self) -> Any:
        """What user code saw."""
        return self.default if self.value is None else self.value


class OperatorState(Record, frozen=True):
    """The whole state of an operator at the end of an epoch."""

    keys: str  # DDL of the key columns
    variables: dict[str, Variable]
    # Oldest first; later entries win. As stored, without those of the lists.
    files: tuple[StateFile, ...] = ()
    # Where files stand that are too many for the manifest.
    lists: tuple[FileList, ...] = ()
    timers: TimerHeads = TimerHeads()
    # Entry ids added minus entry ids deleted: what ``status`` shows as state size.
    entries: int = 0
    # The watermark that the operator saw in this epoch.
    watermark_us: int | None = None
    # Of a window: what its panes are, since rows of other panes cannot be merged.
    windows: str | None = None
    # Copies of this state that are of an earlier epoch are of another operator.
    since: int = 0
    # The uid that this state had until then; None: there was none.
    was: str | None = None
    # What its user code saw in this epoch.
    parameters: dict[str, Parameter] = {}


class InputRange(Record, frozen=True):
    """What an epoch read from a source: offsets are the source's own JSON."""

    start: Any
    end: Any
    rows: int | None = None
    # Rows before ``start`` that the region left out after a failure; None: it is not
    # known how many. Only `at most once`.
    skipped: int | None = 0


class PartitionTime(Record, frozen=True):
    """Event time of one partition of an input."""

    # None: rows were seen, but none that moves the watermark.
    max_time_us: int | None = None
    active_us: int | None = None


class Watermark(Record, frozen=True):
    """Event time of an ``event_time`` declaration, as used by the *next* epoch."""

    max_time_us: int | None = None
    watermark_us: int | None = None
    # Wall time at which rows were last seen, for idle inputs.
    active_us: int | None = None
    # After how long without rows it does not hold time back any more.
    idle_after_us: int | None = None
    # How late rows may come; None in epochs of older versions.
    delay_us: int | None = None
    # The column that tells its partitions apart, and whether only some rows move it.
    per: str | None = None
    is_marked: bool = False
    # Of an input that is declared ``per`` partition: those that are known.
    partitions: dict[str, PartitionTime] = {}


class ChannelColumns(Record, frozen=True):
    """What rows of a channel look like: readers need not know the flow (§7.1)."""

    ddl: str
    # Whether rows carry their event time.
    has_time: bool = False
    # Key columns as DDL: rows of a file stand by the key groups of these (§7.3).
    keys: str = ""


class SinkOutput(Record, frozen=True):
    """What the tasks staged for a sink; the sink's own JSON tokens."""

    kind: str
    tokens: tuple[Any, ...] = ()
    rows: int = 0
    # The token of the run that decided it; empty in epochs of older writers.
    run: str = ""
    # Where the sink wrote, in words of its own; without secrets.
    place: str = ""
    # The rows take the place of all rows before, also if there are none.
    replaces: bool = False
    # The newest epoch before this one that the sink was given at this place; None: it
    # is not known.
    before: int | None = None
    # Of a channel: no more rows at or before this instant follow (§7.1).
    watermark_us: int | None = None
    # Of a channel; None in epochs of older writers.
    columns: ChannelColumns | None = None
    # Of a channel: it closes a loop.
    is_back: bool = False


class Meaning(Record, frozen=True):
    """What a uid stood for in an epoch (§4.5)."""

    kind: str  # source, event_time, operator, sink
    what: str
    place: str = ""
    digest: str = ""
    way: str = ""
    recipe: str = ""  # how the two were made: those of another tell nothing


class Manifest(Record, frozen=True):
    """``epochs/<n>.json``: the epoch exists if and only if this file does (§4)."""

    format: int
    flow: str
    region: str
    epoch: int
    parent: int | None
    run: int
    started_us: int
    decided_us: int
    # Processing time and randomness that user code saw.
    now_us: int
    seed: int
    parallelism: int
    key_groups: int
    code: str
    # (first epoch, token) of the runs that led here, newest last (§4.3).
    history: tuple[tuple[int, str], ...] = ()
    # The last request that was taken up (§3.1).
    requests: int = 0
    inputs: dict[str, InputRange] = {}
    # DDL by uid: of sources, and of what steps of user code were given.
    columns: dict[str, str] = {}
    # What uids stood for, also those that the code no longer has.
    meanings: dict[str, Meaning] = {}
    watermarks: dict[str, Watermark] = {}
    operators: dict[str, OperatorState] = {}
    outputs: dict[str, SinkOutput] = {}
    # Cuts whose markers come after the rows of this epoch; cuts that are still being
    # taken and that this or an earlier epoch bears; the last one that was known (§6.4).
    markers: tuple[int, ...] = ()
    borne: tuple[int, ...] = ()
    heard: int | None = None
    reset: int = 0  # the last reset that was taken up (§6.5)
    # What the region promised when it was decided.
    guarantee: str = EXACTLY_ONCE
    metrics: dict[str, Any] = {}


class JointCut(Record, frozen=True):
    """A cut over several flows, as each of them has it (§6.6)."""

    id: str
    # Where it is decided; and all stores, by the id of the flow.
    head: str
    flows: dict[str, str]


class Named(Record, frozen=True):
    """``snapshots/<name>.json``: pins one epoch of each region."""

    name: str
    regions: dict[str, int]
    created_us: int
    note: str = ""
    # Of a snapshot of several regions: how and as which cut it was taken.
    protocol: str = ""
    cut: int | None = None
    asked_us: int | None = None
    in_flight: tuple[InFlight, ...] = ()
    # Tokens of the runs that decided these epochs, by region: numbers come again if a
    # store is put back from a backup. Older writers have left none.
    tokens: dict[str, str] = {}
    # How long each region took from the first marker it could see to its own.
    alignment_us: dict[str, int] = {}
    # Of one over several flows.
    joint: JointCut | None = None


class CutProposal(Record, frozen=True):
    """``cuts/<n>.json``: somebody asks for a snapshot of all regions (§6.4)."""

    number: int  # from 1
    name: str
    protocol: str
    asked_us: int
    # How long regions may take to bear the marker.
    timeout_us: int
    note: str = ""
    # Other flows take part.
    joint: JointCut | None = None


class LeaseRecord(Record, frozen=True):
    """``leases/<id>.json``: a reader pins an epoch until an instant (§6)."""

    id: str
    regions: dict[str, int]
    expires_us: int
    holder: str = ""
    # It counts as long as no epoch of this number or a later one is decided: whoever
    # goes back holds the epoch it goes to, however long it is paused.
    before: int | None = None


class Expiring(Record, frozen=True):
    """``regions/<region>/expiring/<id>.json``: epochs that are being deleted (§6)."""

    epochs: tuple[int, ...]


class Merged(Record, frozen=True):
    """``regions/<region>/merged/<id>.json``: merged files that wait (§5.4)."""

    operator: str
    replaced: tuple[str, ...]
    by: tuple[StateFile, ...]


class SinkPlace(Record, frozen=True):
    """``sinks/<uid>.json``: where a Kafka sink has left an epoch marker (§1)."""

    flow: str
    cluster: str


class Stop(Record, frozen=True, tag="stop"):
    """Asks a run to stop after the epoch in progress."""

    run: int
    # The name to give to the last epoch of the run.
    savepoint: str | None = None
    # A start that has no run yet; ``run`` is 0 then.
    start: str | None = None


class Rescale(Record, frozen=True, tag="rescale"):
    """Asks a run for another parallelism."""

    run: int
    parallelism: int


class Change(Record, frozen=True, tag="set"):
    """Asks whichever run comes first for other values of parameters, by operator."""

    values: dict[str, dict[str, Any]] = {}
    # Parameters that go back to what the code says.
    defaults: dict[str, tuple[str, ...]] = {}


class Request(Record, frozen=True):
    """``requests/<n>.json``: what people ask of a flow, in order (§3.1)."""

    number: int  # from 1
    asked_us: int
    host: str
    what: Stop | Rescale | Change


class ForkRecord(Record, frozen=True):
    """``forks/<flow>.json``: a fork that refers to files of this store pins an epoch.

    Also ``fork.json`` of the new store, until it has a flow.
    """

    flow: str  # the id of the fork
    store: str
    region: str
    epoch: int
    created_us: int
    origin: Origin | None = None
    is_copy: bool = False
    # As in ``Origin``: all of it is pinned.
    regions: dict[str, int] = {}
    in_flight: tuple[InFlight, ...] = ()
