"""Errors of the epoch protocol: what ended a run or an epoch."""

from __future__ import annotations

from riverlock.core.errors.root import RiverlockError

__all__ = [
    "ClusterLostError",
    "CoordinationError",
    "EndlessLoopError",
    "EpochAbortedError",
    "ExchangeError",
    "FencedError",
    "InputChangedError",
    "StoreChangedError",
]


class CoordinationError(RiverlockError):
    """The epoch protocol stopped this run."""

    code = "COORDINATION"


class FencedError(CoordinationError):
    """Another run owns the flow; this one has stopped and changed nothing."""

    code = "FENCED"
    exit_code = 4
    store: str
    run: int | None
    owner: str

    def __init__(self, *, store: str, run: int | None, owner: str) -> None:
        """Name the store, our run and the owner."""
        ours = "this run" if run is None else f"run {run}"
        super().__init__(
            f"{ours} of {store} is fenced: {owner} owns the flow now",
            hint="stop the other run first (riverlock stop), or wait until it ends",
            store=store,
            run=run,
            owner=owner,
        )


class StoreChangedError(CoordinationError):
    """The store lacks what this run has written: it went back under a live run."""

    code = "STORE_CHANGED"
    exit_code = 3
    store: str
    run: int
    epoch: int
    lacks: str

    def __init__(self, *, store: str, run: int, epoch: int, lacks: str) -> None:
        """Name the store, our run, the epoch that it wanted, and what is not there."""
        super().__init__(
            f"{store} has changed under run {run}: {lacks} is not there any more; was"
            f" the store put back from a backup, or removed? epoch {epoch} was not"
            " decided, since nobody could read it without what is missing",
            hint="put the store back once more, now that nothing runs, and start the"
            " flow: it continues from there, and sinks tell if they have more; stop"
            " all runs (riverlock stop) before a store is put back",
            store=store,
            run=run,
            epoch=epoch,
            lacks=lacks,
        )


class ClusterLostError(CoordinationError):
    """Spark has had nobody to run tasks for too long, or is itself gone."""

    code = "CLUSTER_LOST"
    master: str
    epoch: int | None
    seconds: int | None

    def __init__(
        self, *, master: str, epoch: int | None = None, seconds: int | None = None
    ) -> None:
        """Name the cluster, the epoch that waits, and for how long there was nobody.

        Without these, Spark's JVM is gone.
        """
        if seconds is None:
            message = (
                f"Spark's JVM (master {master!r}) no longer answers; it may have been"
                " killed"
            )
            hint = (
                "decided epochs are untouched, and the next run completes the last one;"
                " restart the flow in a new process"
            )
        else:
            message = (
                f"epoch {epoch} could not run: the Spark application on {master} has"
                f" had no executor for {seconds} seconds"
            )
            hint = (
                "nothing of the epoch was committed, and earlier ones are untouched;"
                " restart the flow in a new Spark session: a master that was restarted"
                " does not know this one; if the cluster is only busy, wait longer with"
                " executor_timeout="
            )
        super().__init__(
            message, hint=hint, master=master, epoch=epoch, seconds=seconds
        )


class EpochAbortedError(CoordinationError):
    """The epoch did not happen; its input is read again."""

    code = "EPOCH_ABORTED"
    epoch: int | None
    reason: str
    cause: str

    def __init__(self, *, epoch: int | None, reason: str, cause: str) -> None:
        """Name the epoch, if it has a number by now, and why."""
        which = "the epoch" if epoch is None else f"epoch {epoch}"
        super().__init__(
            f"{which} was aborted ({reason}): {cause}",
            hint="nothing of it was committed; earlier epochs are untouched",
            epoch=epoch,
            reason=reason,
            cause=cause,
        )


class InputChangedError(EpochAbortedError):
    """An input has other rows than were planned; the epoch is planned anew."""

    code = "INPUT_CHANGED"


class EndlessLoopError(CoordinationError):
    """Rows went round a loop more often than they may."""

    code = "ENDLESS_LOOP"
    loop: str
    operator: str
    region: str
    rows: int
    max_rounds: int

    def __init__(
        self, loop: str, *, operator: str, region: str, rows: int, max_rounds: int
    ) -> None:
        """Name the loop, what feeds it, its region, its rows, and the bound."""
        super().__init__(
            f"loop {loop!r} does not empty: rows have come round {max_rounds} times,"
            f" as often as they may while nothing else comes in, and {operator} still"
            f" feeds it; {rows} rows are in it, and wait",
            hint=f"decided epochs are untouched, and other regions than {region!r} go"
            " on; see that each row leaves the loop in the end, such as by a counter"
            f" in it, or raise max_rounds of flow.loop(uid={loop!r}), and start again:"
            " the rows are still there",
            loop=loop,
            operator=operator,
            region=region,
            rows=rows,
            max_rounds=max_rounds,
        )


class ExchangeError(CoordinationError):
    """Tasks that run together, or the driver and a task, cannot go on with each other.

    Their generation is over; the epoch is run again by new tasks.
    """

    code = "EXCHANGE"
    reason: str
    what: str
    peer: int | None

    def __init__(self, reason: str, *, what: str, peer: int | None = None) -> None:
        """Name the reason in two words, what happened, and the other task, if any."""
        super().__init__(
            f"tasks cannot go on together ({reason}): {what}",
            hint="nothing of the epoch was committed; the run starts its tasks again",
            reason=reason,
            what=what,
            peer=peer,
        )
