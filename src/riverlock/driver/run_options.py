"""How to run a flow: the options of ``run`` and ``start``."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from difflib import get_close_matches
from typing import TYPE_CHECKING, Literal, TypedDict, get_args

from riverlock.coordinator.restart import ExponentialDelay, RestartPolicy
from riverlock.core.clock import Clock, SystemClock
from riverlock.core.errors import InvalidConfigError
from riverlock.core.suggestions import did_you_mean
from riverlock.core.times import duration_us

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import timedelta

    from pyspark.sql import SparkSession

    from riverlock.snapshot.format.run_status import Status

__all__ = ["RunKeywords", "RunOptions", "chosen"]

Execution = Literal["jobs", "local", "continuous"]
Protocol = Literal["aligned", "unaligned", "drain", "epochs"]
NUMBERS = ("parallelism", "max_rows_per_epoch", "max_epochs", "snapshots_keep")
DEFAULT_RESTART = ExponentialDelay(initial_us=200_000, max_us=30_000_000, attempts=5)


class RunKeywords(TypedDict, total=False):
    """The keywords of ``flow.run`` and ``flow.start``, for editors and type checkers.

    The same names as those of ``RunOptions``, which has their meaning and defaults.
    """

    execution: Execution
    region: str | None
    spark: SparkSession | None
    available_now: bool
    parallelism: int | Literal["auto"] | None
    epoch_target: str | timedelta | None
    max_rows_per_epoch: int | None
    max_epochs: int | None
    restart: RestartPolicy
    retain_epochs: int
    grace: str | timedelta
    snapshots_every: str | timedelta | None
    snapshots_keep: int
    protocol: Protocol
    executor_timeout: str | timedelta | None
    working_dir: str | None
    on_status: Callable[[Status], object]
    clock: Clock


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """How to run a flow.

    Attributes:
        execution: Which engine runs the stages of an epoch: ``"jobs"``, each as a Spark
            job; ``"continuous"``, in Spark tasks that stay from epoch to epoch; or
            ``"local"``, in one thread without Spark, if all steps are Python. May
            differ from run to run.
        region: Run this region alone: others may run in other processes, each on a
            Spark of its own. Default: all regions of the flow.
        spark: A session to run on; default: the active one, or a new local one.
        available_now: Take what is there at the start, then stop.
        parallelism: Tasks per keyed stage; default: the cores Spark has. May differ
            from run to run: state follows. ``"auto"``: at most that many, as backlog
            and duration of epochs ask for.
        epoch_target: How long an epoch should take; rows per epoch adapt to it. None:
            every epoch takes ``max_rows_per_epoch``.
        max_rows_per_epoch: Rows an epoch takes at most, shared by its sources. Files
            are taken whole, at least one.
        max_epochs: Stop after so many epochs.
        restart: What to do when an epoch fails for a reason that may pass.
        retain_epochs: How many epochs are kept to go back to.
        grace: How long files that nothing refers to are kept.
        snapshots_every: Take a snapshot of all regions this often, named
            ``auto-000001`` and so on. None: only when somebody asks for one.
        snapshots_keep: How many of these are kept; older ones lose their names.
        protocol: How several regions agree on a snapshot, unless whoever asks says
            otherwise: see ``Handle.savepoint``.
        executor_timeout: For how long Spark may have no executor while tasks wait; the
            run then ends with an error. None: for ever.
        working_dir: Local disk for working copies of state; disposable.
        on_status: Called after each epoch.
        clock: The time; for tests.
    """

    execution: Execution = "jobs"
    region: str | None = None
    spark: SparkSession | None = None
    available_now: bool = False
    parallelism: int | Literal["auto"] | None = None
    epoch_target: str | timedelta | None = "1 second"
    max_rows_per_epoch: int | None = None
    max_epochs: int | None = None
    restart: RestartPolicy = DEFAULT_RESTART
    retain_epochs: int = 20
    grace: str | timedelta = "10 minutes"
    snapshots_every: str | timedelta | None = None
    snapshots_keep: int = 10
    protocol: Protocol = "aligned"
    executor_timeout: str | timedelta | None = "5 minutes"
    working_dir: str | None = None
    on_status: Callable[[Status], object] = field(default=lambda _: None)
    clock: Clock = field(default_factory=SystemClock)

    def __post_init__(self) -> None:
        """Refuse numbers that make no sense.

        Raises:
            InvalidConfigError: One does not.
        """
        self._check_words()
        for name in NUMBERS:
            value = getattr(self, name)
            if isinstance(value, str):
                continue
            if value is not None and value < 1:
                raise InvalidConfigError(name, expected="at least 1", found=str(value))
        if self.retain_epochs < 2:
            raise InvalidConfigError(
                "retain_epochs", expected="at least 2", found=str(self.retain_epochs)
            )
        # Now, not when the store is claimed: a wrong one must change nothing.
        if self.epoch_target is not None:
            duration_us(self.epoch_target)
        elif self.max_rows_per_epoch is None:
            raise InvalidConfigError(
                "epoch_target=None", expected="max_rows_per_epoch=", found="none"
            )
        for given in (self.grace, self.snapshots_every, self.executor_timeout):
            if given is not None:
                duration_us(given)

    def _check_words(self) -> None:
        if self.execution not in get_args(Execution):
            raise InvalidConfigError(
                "execution",
                expected=f"one of {', '.join(get_args(Execution))}",
                found=repr(self.execution),
                hint=did_you_mean(self.execution, get_args(Execution)),
            )
        if isinstance(self.parallelism, str) and self.parallelism != "auto":
            raise InvalidConfigError(
                "parallelism",
                expected='a number, or "auto"',
                found=repr(self.parallelism),
            )
        if self.protocol not in get_args(Protocol):
            raise InvalidConfigError(
                "protocol",
                expected=f"one of {', '.join(get_args(Protocol))}",
                found=repr(self.protocol),
                hint=did_you_mean(self.protocol, get_args(Protocol)),
            )


def chosen(options: RunKeywords) -> RunOptions:
    """Return the options that a caller passed by name.

    Raises:
        InvalidConfigError: There is no such option, or its value makes no sense.
    """
    known = [f.name for f in fields(RunOptions)]
    for name in options:
        if name not in known:
            raise _unknown(name, known)
    return RunOptions(**options)


def _unknown(name: str, known: list[str]) -> InvalidConfigError:
    """Return the error for an unknown option, with the one that was probably meant."""
    # As others spell it: availableNow, available-now.
    plain = "".join(f"_{c.lower()}" if c.isupper() else c for c in name)
    near = get_close_matches(plain.replace("-", "_"), known, n=1)
    return InvalidConfigError(
        "a run",
        expected=f"one of the options {', '.join(known)}",
        found=f"{name}=",
        hint=f"did you mean {near[0]}=?" if near else "",
    )
