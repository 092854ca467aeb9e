"""A flow that runs beside the caller: watched, changed and stopped through its handle.

Knows nothing about the engine that runs it.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, Literal, Protocol

from riverlock.core.errors import InvalidConfigError
from riverlock.snapshot.format.records import Change
from riverlock.snapshot.verbs.cut import check_protocol

if TYPE_CHECKING:
    from riverlock.snapshot.format.records import Named
    from riverlock.snapshot.format.run_status import Status
    from riverlock.snapshot.verbs.restore_all import RestoreAll

__all__ = ["Handle", "Running"]


class Running(Protocol):
    """A run, as an engine has it.

    ``__enter__`` checks the flow and claims its store; ``drive`` then runs it to its
    end, in one thread; everything else may be called from any other meanwhile.
    """

    def __enter__(self) -> Any:
        """Check the flow, then own its store."""

    def __exit__(self, *exc_info: object) -> None:
        """Close everything."""

    def drive(self) -> None:
        """Run to the end."""

    def stop(self, savepoint: str | None = None) -> None:
        """Finish the epoch in progress, name it, then end."""

    def rescale(self, parallelism: int, *, region: str | None = None) -> None:
        """Change the number of tasks from the next epoch."""

    def savepoint(self, name: str, *, protocol: str | None = None) -> Named:
        """Name the newest epoch, or one of each region."""

    def restore(self, name: str, *, keep_output: bool = False) -> RestoreAll:
        """Go back with all regions."""

    def check_name(self, name: str) -> None:
        """Refuse a name that is taken."""

    def set(self, change: Change) -> int | None:
        """Change parameters; return the epoch that has them, None if it has ended."""

    def status(self, region: str | None = None) -> Status:
        """How it, or one of its regions, is doing."""
        ...


class Handle:
    """A flow that runs in a thread of its own; made by ``flow.start``."""

    def __init__(self, running: Running) -> None:
        """Open the run here, so that errors reach the caller; drive it beside."""
        self._running = running
        self._error: BaseException | None = None
        running.__enter__()
        self._thread = threading.Thread(
            target=self._drive, name="riverlock-loop", daemon=True
        )
        self._thread.start()

    def _drive(self) -> None:
        try:
            self._running.drive()
        except BaseException as error:  # noqa: BLE001 - raised again by wait()
            self._error = error
        finally:
            self._running.__exit__(None, None, None)

    def status(self, region: str | None = None) -> Status:
        """Return the status after the last epoch; its ``epoch`` is None before one.

        Args:
            region: The region; by default the first one that runs here.

        Raises:
            InvalidConfigError: There is no such region here.
        """
        return self._running.status(region)

    @property
    def is_active(self) -> bool:
        """Whether the flow still runs."""
        return self._thread.is_alive()

    def savepoint(
        self,
        name: str,
        *,
        protocol: Literal["aligned", "unaligned", "drain", "epochs"] | None = None,
    ) -> Named:
        """Name the newest committed epoch, so that it is kept; the flow keeps running.

        Of a flow with several regions, one epoch of each, such that they are one
        consistent cut: no region has read what another had not written. Returns once
        all regions have taken part.

        Args:
            name: Of the snapshot.
            protocol: How regions agree on the cut: ``aligned`` (default; regions wait
                for the marker of each input), ``unaligned`` (they do not wait; rows
                between them are part of the snapshot), ``drain`` (sources pause until
                nothing is between them), ``epochs`` (all wait for each other).

        Raises:
            InvalidConfigError: The name is taken, or there is no such protocol.
            SnapshotNotFoundError: No epoch was committed yet.
            SnapshotAbandonedError: A region did not take part in time.
        """
        if protocol is not None:
            check_protocol(protocol)
        return self._running.savepoint(name, protocol=protocol)

    def restore(self, name: str, *, keep_output: bool = False) -> RestoreAll:
        """Go back to a named snapshot with all regions of the flow, which goes on.

        What ``rl.stores.restore_all`` does: regions need not be stopped for it.

        Args:
            name: Of the snapshot.
            keep_output: Leave the output of file sinks in sight.

        Returns:
            What was done, once all regions are back; ``waiting`` names those that take
            longer.

        Raises:
            InvalidConfigError: The flow has one region only, or the snapshot does not
                have all of them; nothing was changed.
            SnapshotNotFoundError: There is no such snapshot; nothing was changed.
        """
        self._check_beside("handle.restore()")
        return self._running.restore(name, keep_output=keep_output)

    def _check_beside(self, what: str) -> None:
        if threading.current_thread() is self._thread:
            raise InvalidConfigError(
                what,
                expected="to be called beside the flow",
                found="a call from its own thread, which would wait for itself",
                hint="do not call it in on_status",
            )

    def rescale(self, parallelism: int, *, region: str | None = None) -> None:
        """Set the number of tasks per keyed stage from the next epoch; state follows.

        Args:
            parallelism: The number.
            region: The region; by default all that run here.

        Raises:
            InvalidConfigError: It is less than 1, or there is no such region here.
        """
        _check_parallelism(parallelism)
        self._running.rescale(parallelism, region=region)

    def set(self, operator: str, /, **values: Any) -> int:
        """Change parameters (``rl.Param``) of an operator; return the first epoch.

        All tasks have the new values from the same epoch on, which follows at once and
        records them; this call waits for it. The store keeps them: the next run has
        them too, whatever the default in its code. With several regions, the epoch is
        that of the operator's region.

        Raises:
            InvalidConfigError: There is no such parameter, or a value is not of its
                kind; nothing was changed. Or the run ended before it took them up.
            RiverlockError: What ended the run.
        """
        return self._change(Change(values={operator: values}))

    def reset(self, operator: str, /, *names: str) -> int:
        """Go back to the defaults of parameters; return the first epoch.

        Raises:
            RiverlockError: As ``set`` does.
        """
        return self._change(Change(defaults={operator: names}))

    def _change(self, change: Change) -> int:
        self._check_beside("handle.set()")
        epoch = self._running.set(change)
        if epoch is None:
            self.wait()
            raise InvalidConfigError(
                "handle.set()",
                expected="a flow that runs",
                found="a run that has ended",
                hint="the next run takes them up with its first epoch",
            )
        return epoch

    def stop(
        self, timeout: float | None = None, *, savepoint: str | None = None
    ) -> None:
        """Finish the epoch in progress, then end.

        Args:
            timeout: How long to wait for the end, in seconds.
            savepoint: A name for the last epoch, which it gets before any other run can
                begin.

        Raises:
            InvalidConfigError: The name is taken; the flow keeps running.
            RiverlockError: What ended the run, if it was not this call.
        """
        _check_seconds("stop(timeout=)", timeout)
        if savepoint is not None:
            self._running.check_name(savepoint)
        self._running.stop(savepoint)
        self.wait(timeout)

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the flow ends; return whether it has.

        Raises:
            RiverlockError: What ended it.
        """
        _check_seconds("wait(timeout=)", timeout)
        self._thread.join(timeout)
        if self._error is not None:
            raise self._error
        return not self._thread.is_alive()


def _check_seconds(what: str, timeout: object) -> None:
    if timeout is not None and not isinstance(timeout, int | float):
        raise InvalidConfigError(
            what, expected="seconds as a number", found=repr(timeout)
        )


def _check_parallelism(wanted: object) -> None:
    if not isinstance(wanted, int) or wanted < 1:
        raise InvalidConfigError(
            "parallelism", expected="a whole number of at least 1", found=repr(wanted)
        )
