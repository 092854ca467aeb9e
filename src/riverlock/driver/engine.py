"""The seam between the driver and what runs stages.

An engine knows how rows are read, how they get to tasks, and how votes come back. It
decides nothing: which stages there are (``stages``), what an epoch reads, when it is
decided, what is tried again, and what sinks commit is the same for all engines, and so
are the code of tasks (``worker``) and everything that is stored. A store may be run by
one engine today and by another tomorrow.

**Order of calls.** ``open`` once, before all else; then ``reader`` for each source, and
``analysis`` (again and again while a source is away); then, once the store is claimed,
``deploy`` and ``committer``; ``Deployment.run_stage`` for each stage of each epoch;
``Deployment.close``, readers are closed, ``close``. A check stops after ``analysis``. A
replay calls ``deploy`` for each epoch and asks for ``delivered`` instead of
``run_stage``. ``close`` is called whatever was raised, ``open`` included.

**Threads.** All calls come from one thread at a time, with two exceptions: ``cancel``
may be called from any thread at any moment, and ``lost`` from any thread.

**Errors.** ``run_stage`` raises a ``RiverlockError`` that says whether the epoch may be
tried again (``EpochAbortedError``, a ``StorageError`` that is retryable, a source that
is away). An engine may try a task again by itself; only one vote per task is given, and
files of other attempts are never mentioned. It must not give a vote of a stage that was
cancelled or that has failed in part. The stage may then be run again under the same
epoch, with the same or other input, and nothing of the failed attempt may be seen.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

from riverlock.core.errors import ClusterLostError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import pyarrow as pa

    from riverlock.connectors.base.committer import Committer
    from riverlock.connectors.base.sink import SinkUse
    from riverlock.connectors.base.source_reader import Reader
    from riverlock.coordinator.instructions import RunStage
    from riverlock.coordinator.votes import Vote
    from riverlock.core.errors import RiverlockError
    from riverlock.core.types import Schema
    from riverlock.program.graph import Read, Write
    from riverlock.program.program import Program
    from riverlock.snapshot.format.records import InputRange, Manifest
    from riverlock.stages.analysis import Analysis
    from riverlock.stages.stage_tasks import StageTasks
    from riverlock.storage.base import Storage

__all__ = ["Deployment", "Engine", "StageRunner", "while_it_is_there"]


class StageRunner(Protocol):
    """Runs stages: all that the region loop asks for."""

    def run_stage(
        self,
        order: RunStage,
        parent: Manifest | None,
        following: Mapping[str, InputRange] | None,
    ) -> tuple[Vote, ...]:
        """Run one stage; return one vote per task.

        Args:
            order: The stage, the plan of its epoch, votes of the stages before it, and
                its number of tasks, which may differ from the last epoch.
            parent: The epoch before, whose state tasks begin with.
            following: What the epoch after this one will read, if that is known: the
                engine may begin with it. Nothing may depend on it.

        Raises:
            RiverlockError: What went wrong.
        """
        ...


class Deployment(StageRunner, Protocol):
    """One run of a flow on an engine."""

    def delivered(
        self, order: RunStage, parent: Manifest | None
    ) -> dict[int, list[pa.RecordBatch]]:
        """Return the rows that the tasks of a stage would get, by task; runs none.

        Raises:
            RiverlockError: What went wrong.
        """
        ...

    def cancel(self) -> None:
        """Stop whatever runs, as soon as possible; from any thread."""
        ...

    def close(self) -> None:
        """Release what the run has open; nothing runs any more."""
        ...


class Engine(Protocol):
    """Runs flows; see the head of this module for who calls what, and when."""

    @property
    def opens_slowly(self) -> bool:
        """Whether ``open`` may take long, so that a start announces itself before."""
        ...

    @property
    def is_here(self) -> bool:
        """Whether all tasks run on this machine, beside the driver."""
        ...

    @property
    def cores(self) -> int:
        """How many tasks run at a time: the parallelism of a flow that names none."""
        ...

    def open(self) -> None:
        """Get ready."""
        ...

    def close(self) -> None:
        """Release everything except what the caller provided."""
        ...

    def lost(self) -> RiverlockError | None:
        """Return what to raise if the engine is gone, and no step can succeed again."""
        ...

    def reader(self, node: Read, storage: Storage) -> Reader:
        """Return the reader of a source; the caller closes it.

        Raises:
            InvalidFlowError: The engine cannot read it.
        """
        ...

    def source_columns(self, reader: Reader) -> Schema:
        """Return the columns that a source has now, as far as we know their types."""
        ...

    def analysis(self, flow: Program, readers: Mapping[str, Reader]) -> Analysis:
        """Return what tells planning about the steps of a flow.

        Raises:
            InvalidFlowError: The engine cannot run a step, or nobody could.
            SourceError: A source cannot say what columns it has.
        """
        ...

    def committer(self, write: Write, use: SinkUse, storage: Storage) -> Committer:
        """Return the committer of a sink.

        Raises:
            InvalidFlowError: There is none here.
        """
        ...

    def deploy(self, tasks: StageTasks, readers: Mapping[str, Reader]) -> Deployment:
        """Return the deployment of a flow for one run; the caller closes it."""
        ...


@contextmanager
def while_it_is_there(engine: Engine) -> Iterator[None]:
    """Report every failure caused by a lost engine as such.

    Raises:
        RiverlockError: The engine is gone.
    """
    try:
        yield
    except ClusterLostError:
        raise
    except Exception as error:
        lost = engine.lost()
        if lost is None:
            raise
        raise lost from error
