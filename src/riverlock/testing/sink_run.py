"""One run of a flow as a sink sees it: tasks stage, the driver commits."""

from __future__ import annotations

import pickle
import uuid
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa

from riverlock.connectors.base.committer import Owner
from riverlock.connectors.base.sink import SinkUse, TwoPhaseSink, place_of
from riverlock.connectors.base.stager import StagePoint
from riverlock.core.errors import InvalidFlowError
from riverlock.core.types import schema_of
from riverlock.core.values.known_types import known
from riverlock.snapshot.format.records import SinkOutput
from riverlock.snapshot.past import Past

if TYPE_CHECKING:
    from riverlock.connectors.base.committer import Committer
    from riverlock.connectors.base.sink import Sink
    from riverlock.connectors.base.stager import Stager
    from riverlock.storage.base import Storage

__all__ = ["Row", "SinkRun"]

Row = tuple[Any, ...]
_SCHEMA = schema_of("id bigint, name string, epoch int")


def _parts(sink: Sink, use: SinkUse, storage: Storage) -> tuple[Stager, Committer]:
    match sink:
        case TwoPhaseSink():
            return sink.stager(use), sink.committer(use, storage)
        case _:
            raise InvalidFlowError(
                "sink in the conformance suite",
                expected="a TwoPhaseSink",
                found=repr(sink),
            )


@dataclass
class SinkRun:
    """One run of a flow with one sink, as far as the sink can tell."""

    sink: Sink
    storage: Storage
    run: int
    flow: str
    uid: str = "conformance"
    # The flow that this one was forked from.
    origin: str | None = None
    # What the store of this run knows of runs and epochs before.
    past: Past = field(default_factory=Past)
    token: str = field(default_factory=lambda: uuid.uuid4().hex)
    _stager: Stager = field(init=False)
    _committer: Committer = field(init=False)

    def __post_init__(self) -> None:
        """Make stager and committer and open the sink, as a run does."""
        use = SinkUse(uid=self.uid, schema=_SCHEMA, replaces=False)
        stager, self._committer = _parts(self.sink, use, self.storage)
        self._stager = pickle.loads(pickle.dumps(stager))  # noqa: S301 - our own
        self._committer.open(
            Owner(
                flow=self.flow,
                sink=self.uid,
                run=self.run,
                origin=self.origin,
                token=self.token,
                past=self.past,
            )
        )

    @property
    def guarantee(self) -> str:
        """What the sink says that readers get."""
        return self._committer.guarantee

    def stage(self, epoch: int, *tasks: list[Row]) -> SinkOutput:
        """Stage the rows of each task; return what a manifest would hold."""
        tokens: list[Any] = []
        for number, rows in enumerate(tasks):
            point = StagePoint(
                storage=self.storage,
                folder=f"staged/{epoch:012d}",
                epoch=epoch,
                attempt=f"{self.run:06d}-s-{number:05d}-{uuid.uuid4().hex[:12]}",
                flow=self.flow,
                token=self.token,
            )
            if rows:
                columns = [list(c) for c in zip(*rows, strict=True)]
                table = pa.table(columns, schema=_SCHEMA.to_arrow())
                tokens += self._stager.stage(table, point)
        kept = SinkOutput(
            kind=self.sink.kind,
            tokens=tuple(tokens),
            rows=sum(map(len, tasks)),
            run=self.token,
            place=place_of(self.sink),
        )
        # Through JSON, as it would come back from the manifest.
        return msgspec.json.decode(msgspec.json.encode(kept), type=known(SinkOutput))

    def commit(self, epoch: int, output: SinkOutput) -> None:
        """Commit a decided epoch."""
        self._committer.commit(epoch, output)
