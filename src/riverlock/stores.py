"""What can be done with a store as a whole, without loading the flow or Spark.

Each function takes the store's directory or address. Address an epoch as
``store@epoch`` or ``store@name``; without ``@`` it is the newest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from riverlock.connectors import going_back as resets
from riverlock.connectors.withdrawal import withdraw_now
from riverlock.core.clock import SystemClock
from riverlock.core.errors import InvalidConfigError
from riverlock.core.times import duration
from riverlock.snapshot import lineage as origins
from riverlock.snapshot import provenance
from riverlock.snapshot.address import (
    open_address,
    open_cut,
    open_region,
    open_store,
    split_address,
)
from riverlock.snapshot.format.records import REGIONS_FEATURE
from riverlock.snapshot.joint.joined_stores import (
    forget_reader,
    readers,
    savepoint_all,
)
from riverlock.snapshot.retention import pins
from riverlock.snapshot.retention.lease import leased
from riverlock.snapshot.state_reader import operator_of
from riverlock.snapshot.verbs import diff as comparing
from riverlock.snapshot.verbs import expire as expiring
from riverlock.snapshot.verbs import fork as forking
from riverlock.snapshot.verbs import fork_parents
from riverlock.snapshot.verbs import repair as repairing
from riverlock.snapshot.verbs import repair_all as repairing_all
from riverlock.snapshot.verbs import restore as going_back
from riverlock.snapshot.verbs import restore_all as together
from riverlock.snapshot.verbs import restore_alone as alone
from riverlock.snapshot.verbs.cut import DEFAULT_PROTOCOL, take_cut
from riverlock.snapshot.verbs.inspection import inspect
from riverlock.storage.open import open_storage

if TYPE_CHECKING:
    from contextlib import AbstractContextManager
    from datetime import timedelta

    from riverlock.snapshot.catalog import Catalog
    from riverlock.snapshot.format.records import ForkRecord, Manifest, Named
    from riverlock.snapshot.lineage import Lineage
    from riverlock.snapshot.provenance import Touch
    from riverlock.snapshot.retention.lease import Lease
    from riverlock.snapshot.verbs.diff import Diff
    from riverlock.snapshot.verbs.expire import Expiry
    from riverlock.snapshot.verbs.fork import Fork
    from riverlock.snapshot.verbs.inspection import Inspection
    from riverlock.snapshot.verbs.repair import Repair
    from riverlock.snapshot.verbs.repair_all import RepairAll
    from riverlock.snapshot.verbs.restore import Restore
    from riverlock.snapshot.verbs.restore_all import RestoreAll

__all__ = [
    "diff",
    "drop_savepoint",
    "expire",
    "expire_all",
    "explain",
    "forget_fork",
    "forget_reader",
    "fork",
    "forks",
    "lease",
    "readers",
    "repair",
    "repair_all",
    "restore",
    "restore_all",
    "savepoint",
    "savepoint_all",
    "touches",
    "verify",
]


def savepoint(
    address: str, name: str, *, note: str = "", protocol: str = DEFAULT_PROTOCOL
) -> Named:
    """Name a snapshot, so that it is kept; the flow may run meanwhile.

    Of a flow with several regions, which must run, one epoch of each is named, such
    that they are one consistent cut.

    Args:
        address: ``store``, ``store@epoch`` or ``store@name``.
        name: Of the snapshot.
        note: For people.
        protocol: How several regions agree: see ``Handle.savepoint``.

    Raises:
        InvalidConfigError: The name is taken, or a number.
        SnapshotNotFoundError: There is no such epoch.
        SnapshotAbandonedError: A region did not take part in time.
    """
    store, at = split_address(address)
    catalog, now_us = open_store(store), SystemClock().now_us()
    if REGIONS_FEATURE in catalog.flow().features and at is None:
        return take_cut(catalog, name, protocol=protocol, now_us=now_us, note=note)
    catalog.check_one_region(f"a name for epoch {at}", hint="leave out the epoch")
    manifest = catalog.resolve(at)
    return catalog.pin(name, epoch=manifest.epoch, now_us=now_us, note=note)


def drop_savepoint(store: str, name: str) -> Named:
    """Remove the name of a snapshot, which is then kept no longer than others.

    Raises:
        SnapshotNotFoundError: There is no such savepoint.
    """
    return open_store(store).unpin(name)


def lease(
    address: str, *, lasts: str | timedelta = "10 minutes"
) -> AbstractContextManager[Lease]:
    """Keep an epoch while it is read: ``with rl.stores.lease("store@41"): ...``.

    To read for longer, call ``renew()`` on what ``with`` returns.

    Raises:
        SnapshotNotFoundError: There is no such epoch.
    """
    catalog, manifest = open_address(address)
    return leased(catalog, manifest.epoch, lasts=duration(lasts))


def expire(  # noqa: PLR0913 - three limits, and how
    store: str,
    *,
    epochs: int | None = None,
    older_than: str | timedelta | None = None,
    max_bytes: int | None = None,
    grace: str | timedelta = "10 minutes",
    dry_run: bool = False,
) -> Expiry:
    """Delete old epochs and the files that only they refer to; return what was deleted.

    The newest epoch, and those that have a name, a fork or a reader, always stay.

    Args:
        store: The store.
        epochs: Keep this many of the newest.
        older_than: Delete epochs decided longer ago than this.
        max_bytes: Delete the oldest until all state files have at most this many bytes.
        grace: Keep epochs decided less long ago than this.
        dry_run: Only return what would be deleted.

    Raises:
        InvalidConfigError: There is no limit, or there are several regions: call
            ``expire_all``.
        SnapshotCorruptedError: A manifest is damaged; nothing was deleted.
    """
    open_store(store).check_one_region("expire()", hint="call expire_all()")
    (plan,) = expire_all(
        store,
        epochs=epochs,
        older_than=older_than,
        max_bytes=max_bytes,
        grace=grace,
        dry_run=dry_run,
    ).values()
    return plan


def expire_all(  # noqa: PLR0913 - three limits, and how
    store: str,
    *,
    epochs: int | None = None,
    older_than: str | timedelta | None = None,
    max_bytes: int | None = None,
    grace: str | timedelta = "10 minutes",
    dry_run: bool = False,
) -> dict[str, Expiry]:
    """Do the same for each region of a flow; return what was deleted, by region.

    What regions have sent each other stays until it is read. What a named snapshot, a
    fork or a reader needs of any region always stays.

    Args:
        store: The store.
        epochs: Keep this many of the newest, of each region.
        older_than: Delete epochs decided longer ago than this.
        max_bytes: Delete the oldest until the state files of a region have at most this
            many bytes.
        grace: Keep epochs decided less long ago than this.
        dry_run: Only return what would be deleted.

    Raises:
        InvalidConfigError: There is no limit.
        SnapshotCorruptedError: A manifest is damaged: nothing of its region was
            deleted.
    """
    catalog, now_us = open_store(store), SystemClock().now_us()
    limits = expiring.Limits(
        epochs=epochs,
        age=None if older_than is None else duration(older_than),
        bytes=max_bytes,
        grace=duration(grace),
    )
    found = {}
    for part in expiring.readers_first(catalog):
        plan = expiring.plan_expiry(part, limits, now_us=now_us)
        found[part.region] = plan
        if not dry_run:
            expiring.expire(part, plan)
    return found


def restore(
    address: str,
    *,
    region: str | None = None,
    keep_output: bool = False,
    dry_run: bool = False,
) -> Restore:
    """Go back to an epoch: its state, input positions, timers and watermarks.

    This makes a new epoch with the state of the old one. Epochs between stay as they
    are, and you can go to them. The next run reads the inputs again from there. Output
    of file sinks is moved out of readers' sight; other output stays.

    Args:
        address: ``store@epoch`` or ``store@name``.
        region: Of a flow with several regions, the one that goes back alone;
            ``restore_all`` goes back with all of them.
        keep_output: Leave the output of file sinks in sight.
        dry_run: Only return what would happen.

    Returns:
        The plan that was carried out.

    Raises:
        FencedError: The flow runs: stop it first. Nothing was changed.
        SnapshotNotFoundError: There is no such epoch.
        InvalidConfigError: Another region has read what would be undone; the error
            names the snapshots of all regions that one can go back to.
    """
    catalog, target = open_region(address, region)
    if not dry_run:
        now_us = SystemClock().now_us()
        resets.complete_resets(catalog, now_us=now_us)
    alone.check_alone(catalog, target)
    plan = going_back.plan_restore(catalog, target, keep_output=keep_output)
    if not dry_run:
        go_back(catalog, plan)
    return plan


def restore_all(
    address: str, *, keep_output: bool = False, dry_run: bool = False
) -> RestoreAll:
    """Go back to a named snapshot with all regions of a flow, whether they run or not.

    Each region gets a new epoch with the state of the old one, and reads its inputs
    again from there; rows that were between regions are read too. A region that runs
    does so when it plans its next epoch, and goes on.

    Args:
        address: ``store@name``.
        keep_output: Leave the output of file sinks in sight.
        dry_run: Only return what would happen.

    Returns:
        What was done, once all regions are back; ``waiting`` names those that take
        longer than a minute: they go back when they plan or start.

    Raises:
        SnapshotNotFoundError: There is no such snapshot.
        InvalidConfigError: It does not have all regions.
    """
    store, at = split_address(address)
    catalog, clock = open_store(store), SystemClock()
    if not dry_run:
        resets.complete_resets(catalog, now_us=clock.now_us())
    if at is None:
        names = ", ".join(each.name for each in catalog.snapshots())
        raise InvalidConfigError(
            "restore_all()",
            expected="store@name, with the name of a snapshot",
            found=repr(address),
            hint=f"its snapshots are {names}" if names else "it has no snapshot",
        )
    plan = together.plan_restore_all(catalog, at, keep_output=keep_output)
    if not dry_run and not plan.is_done:
        plan = resets.restore_all(catalog, plan, clock)
    return plan


def go_back(catalog: Catalog, plan: Restore, *, why: str = "restore") -> Manifest:
    """Carry out a plan to go back."""
    now_us = SystemClock().now_us()
    together.give_up_cuts(catalog, why=f"region {catalog.region!r} went back")
    made = going_back.restore(catalog, plan, now_us=now_us, why=why)
    # The next start would do it too; nobody should see the output until then.
    withdraw_now(catalog, made)
    return made


def fork(address: str, new: str, *, copy: bool = False) -> Fork:
    """Make a store that begins with the state and input positions of an epoch.

    The flow may run meanwhile; from then on each store is independent. State files are
    not copied: the new store refers to them, and they are kept as long as it does. Of a
    flow with several regions the fork has all of them, and reads the rows that were in
    flight.

    Args:
        address: ``store@epoch`` or ``store@name``.
        new: An empty place for the new store.
        copy: Copy the files, so that the new store needs no other.

    Raises:
        InvalidConfigError: The place is not empty, or the flow cannot be forked.
        SnapshotNotFoundError: There is no such epoch.
    """
    catalog, targets = open_cut(address)
    plan = forking.plan_fork(catalog, targets, open_storage(new), copy=copy)
    forking.fork(catalog, plan, now_us=SystemClock().now_us())
    return plan


def forks(store: str) -> list[ForkRecord]:
    """Return the forks that refer to files of a store, each of which pins an epoch."""
    return list(pins.forks(open_store(store)))


def forget_fork(store: str, flow: str) -> None:
    """Release what a fork refers to; only for a fork whose store was deleted.

    Args:
        store: The store that was forked.
        flow: The id of the fork, as ``forks`` returns it.

    Raises:
        SnapshotNotFoundError: There is no such fork.
    """
    fork_parents.forget_fork(open_store(store), flow)


def diff(before: str, after: str, *, operator: str | None = None) -> Diff:
    """Compare two snapshots: ``rl.stores.diff("store@41", "store@42").summary()``.

    Both may be of one store, or of a fork and its parent: files that both have are not
    compared.

    Args:
        before: ``store@epoch`` or ``store@name``.
        after: The same for the second one.
        operator: Compare only its state.

    Raises:
        SnapshotNotFoundError: There is no such epoch, or neither has the operator.
        SnapshotCorruptedError: A file that is needed is missing or altered.
    """
    old, new = (_side(address) for address in (before, after))
    return comparing.diff(old, new, operator)


def _side(address: str) -> comparing.Side:
    store, at = split_address(address)
    catalog = open_store(store)
    return comparing.Side(catalog.storage, catalog.resolve_all(at))


def verify(store: str) -> Inspection:
    """Check every file of a store; change nothing.

    Reports which files are damaged, missing or foreign, what that affects, and the
    newest whole epoch.

    Raises:
        SnapshotError: ``flow.json`` is missing, damaged or of a newer version.
    """
    return inspect(open_store(store))


def repair(store: str, *, dry_run: bool = False) -> Repair:
    """Go back to the newest whole epoch, and move damaged or foreign files aside.

    Nothing is deleted: files go to ``quarantine/`` of the store.

    Raises:
        FencedError: The flow runs: stop it first. Nothing was changed.
        SnapshotNotFoundError: No epoch is whole.
        SnapshotError: ``flow.json`` is damaged: put it back from a backup.
    """
    catalog = open_store(store)
    catalog.check_one_region("repair()", hint="call repair_all()")
    plan = repairing.plan_repair(catalog)
    if not dry_run:
        mend(catalog, plan)
    return plan


def mend(catalog: Catalog, plan: Repair) -> str | None:
    """Carry out a repair plan; return the quarantine, if there is one."""
    if plan.restore is not None:
        go_back(catalog, plan.restore, why="repair")
    if not plan.moved:
        return None
    return repairing.quarantine(catalog, plan, now_us=SystemClock().now_us())


def repair_all(store: str, *, dry_run: bool = False) -> RepairAll:
    """Do the same for all regions of a flow, such that they fit together.

    A region goes back to a whole epoch if its newest is damaged, if it has read what
    another region undoes, or if rows that it has sent are damaged and were not read.

    Args:
        store: The store.
        dry_run: Only return what would happen.

    Returns:
        The plan that was carried out.

    Raises:
        FencedError: A region runs: stop the flow first. Nothing was changed.
        SnapshotNotFoundError: No whole epochs fit together; nothing was changed.
        SnapshotError: ``flow.json`` is damaged: put it back from a backup.
    """
    catalog = open_store(store)
    plan = repairing_all.plan_repair_all(catalog)
    if not dry_run:
        mend_all(catalog, plan)
    return plan


def mend_all(catalog: Catalog, plan: RepairAll) -> str | None:
    """Carry out a repair plan of all regions; return the quarantine, if any."""
    return resets.repair_all(catalog, plan, now_us=SystemClock().now_us())


def explain(address: str, *, region: str | None = None) -> Lineage:
    """Return what led to an epoch: runs, code, restores, and what was read.

    Args:
        address: ``store@epoch`` or ``store@name``.
        region: Of a flow with several regions, which of them.

    Raises:
        SnapshotNotFoundError: There is no such epoch.
        InvalidConfigError: There are several regions, and none is named.
    """
    return origins.lineage(*open_region(address, region))


def touches(address: str, operator: str, key: str) -> list[Touch]:
    """Return which epochs, up to one, changed a key, and what they had read.

    For epochs whose changes have been merged only their span is known. Epochs in which
    the operator had another uid are included, and those of the store that a fork began
    with, if that store can be reached.

    Args:
        address: ``store@epoch`` or ``store@name``.
        operator: The operator.
        key: The key as text, or a JSON array for several columns or null.

    Raises:
        SnapshotNotFoundError: There is no such epoch or operator.
        InvalidConfigError: It cannot be a key of the operator.
    """
    from riverlock.query.keys.key_spans import place_of
    from riverlock.query.keys.typed import typed_key

    catalog, manifest = _having(address, operator)
    state = operator_of(manifest, operator, store=catalog.storage.uri)
    place = place_of(typed_key(key, state), state, manifest.key_groups)
    return provenance.touches(catalog, manifest, operator, place.span, place.of)


def _having(address: str, operator: str) -> tuple[Catalog, Manifest]:
    """Open the epoch of the region that an operator is in."""
    store, at = split_address(address)
    catalog = open_store(store)
    manifests = catalog.resolve_all(at)
    found = next((m for m in manifests if operator in m.operators), manifests[0])
    return catalog.of(found.region), found
