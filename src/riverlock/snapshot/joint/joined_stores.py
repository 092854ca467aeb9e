"""What can be done with the stores of several flows: part of ``rl.stores``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from riverlock.core.clock import SystemClock
from riverlock.snapshot.address import open_store
from riverlock.snapshot.joint import channel_readers
from riverlock.snapshot.joint.joint_cut import take_joint_cut
from riverlock.snapshot.verbs.cut import DEFAULT_PROTOCOL

if TYPE_CHECKING:
    from collections.abc import Sequence

    from riverlock.snapshot.format.records import Named
    from riverlock.snapshot.joint.joint_records import ReaderRecord

__all__ = ["forget_reader", "readers", "savepoint_all"]


def savepoint_all(
    stores: Sequence[str],
    name: str,
    *,
    note: str = "",
    protocol: str = DEFAULT_PROTOCOL,
) -> tuple[Named, ...]:
    """Name one consistent snapshot over several flows that are joined by channels.

    All of them must run. Each store gets the name for its own part: go back, look into
    it and drop it store by store. Either all get it, or none.

    Args:
        stores: The stores; the flow of the first one decides, and needs access to all.
        name: Of the snapshot.
        note: For people.
        protocol: How regions agree: see ``Handle.savepoint``.

    Returns:
        What each store has, in their order.

    Raises:
        InvalidConfigError: The name is taken, or a flow shares no channel.
        SnapshotNotFoundError: There is no such store.
        SnapshotAbandonedError: A region did not take part in time.
    """
    return take_joint_cut(
        [open_store(store) for store in stores],
        name,
        protocol=protocol,
        now_us=SystemClock().now_us(),
        note=note,
    )


def readers(store: str) -> list[ReaderRecord]:
    """Return the flows that read channels of a store, each with what it still needs."""
    return list(channel_readers.channel_readers(open_store(store).storage))


def forget_reader(store: str, flow: str) -> list[ReaderRecord]:
    """Remove a flow that reads channels of a store; return what was removed.

    What it has not read may be deleted from then on. If it starts again, it is told so,
    or is a reader again if everything is still there.

    Args:
        store: The store with the channels.
        flow: The name or the id of the flow that reads, as ``readers`` returns it.

    Raises:
        SnapshotNotFoundError: There is no such reader.
    """
    return channel_readers.forget_reader(open_store(store).storage, flow)
