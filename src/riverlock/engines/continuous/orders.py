"""What the driver tells its tasks, and what they answer.

Pickled: driver and tasks are one run of one program, and who connects has proved it.
"""

from __future__ import annotations

import io
import pickle
from dataclasses import dataclass
from enum import IntEnum, unique
from typing import TYPE_CHECKING, Any

import msgspec
from pyspark import cloudpickle

from riverlock.core.errors import InternalError, RiverlockError
from riverlock.worker.task import Outcome

if TYPE_CHECKING:
    from collections.abc import Mapping

    from riverlock.coordinator.votes import Vote
    from riverlock.engines.tables.reading import Pieces
    from riverlock.engines.tables.rows import ArrowRows
    from riverlock.engines.tables.task_inputs import TaskInputs
    from riverlock.stages.stage_tasks import LateRows
    from riverlock.worker.task import KeyedEpoch, KeyedTask, StageTask

__all__ = [
    "Kind",
    "Setup",
    "Share",
    "StageOrder",
    "failed",
    "packed",
    "read_order",
    "voted",
]


@unique
class Kind(IntEnum):
    """What a message is."""

    SETUP = 1  # driver: what the tasks of this generation run
    STAGE = 2  # driver: run a stage of an epoch
    OUTCOME = 3  # task: its vote, or what went wrong


@dataclass(frozen=True, kw_only=True)
class Setup:
    """All that tasks need for any epoch of a generation.

    Attributes:
        inputs: How rows are made of what a task reads.
        keyed: The tasks of keyed stages, by stage.
        writes: Those of the others; epoch and seed come with each order.
        edges: On which edge the rows of a keyed stage travel.
        tasks: How many there are.
    """

    inputs: TaskInputs
    keyed: Mapping[str, KeyedTask]
    writes: Mapping[str, StageTask]
    edges: Mapping[str, int]
    tasks: int


@dataclass(frozen=True, kw_only=True)
class StageOrder:
    """One stage of an epoch, the same for all tasks.

    Attributes:
        begun: What a keyed stage must know of its epoch.
        late: What the stages before say of late records.
    """

    epoch: int
    turn: int
    stage: str
    seed: int
    now_us: int
    begun: KeyedEpoch | None
    late: Mapping[str, LateRows]


@dataclass(frozen=True, kw_only=True)
class Share:
    """What one task is told beside.

    Attributes:
        pieces: What it reads in this epoch; None: it was told with an earlier stage.
        initial: Initial state of the operator, if it is this task that brings it.
    """

    pieces: Pieces | None
    initial: ArrowRows | None = None


def packed(content: object) -> bytes:
    """Return something as bytes; code of the user's main module goes with it."""
    return bytes(cloudpickle.dumps(content))  # type: ignore[no-untyped-call]


def read_order(payload: bytes) -> tuple[StageOrder, Share]:
    """Return an order, which was packed as its two parts, one after the other."""
    source = io.BytesIO(payload)
    order: Any = pickle.load(source)  # noqa: S301 - from our own driver
    share: Any = pickle.load(source)  # noqa: S301 - as above
    return order, share


def voted(seed: int, vote: Vote) -> bytes:
    """Return the answer of a task that has done its part."""
    return msgspec.msgpack.encode(Outcome(seed=seed, vote=vote))


def failed(seed: int, error: Exception) -> bytes:
    """Return the answer of a task that could not."""
    ours = error
    if not isinstance(error, RiverlockError | OSError):
        ours = InternalError(f"a task raised {type(error).__name__}: {error}")
    try:
        body = packed(ours)
        pickle.loads(body)  # noqa: S301 - just made
    except Exception:  # noqa: BLE001 - of what user code put into its error
        body = packed(InternalError(f"{type(error).__name__}: {error}"))
    return msgspec.msgpack.encode(Outcome(seed=seed, error=body))
