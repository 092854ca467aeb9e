"""Going back with all regions of a flow, whether they run or not (format §6.5).

The put of a reset is the decision. A region that runs takes it up by itself, when it
plans its next epoch: its run ends, and begins again behind this. For a region that does
not run, whoever asks goes back; if that does not come about, its next start does.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from riverlock.connectors.withdrawal import withdraw_now
from riverlock.coordinator.resets.rules import (
    GoBack,
    Reset,
    Standing,
    Stray,
    taken_up,
)
from riverlock.core import faults
from riverlock.core.errors import FencedError, InvalidConfigError, SnapshotError
from riverlock.snapshot.claims import check_stopped
from riverlock.snapshot.format.cuts.reset_log import ResetLog
from riverlock.snapshot.kept_epochs import held_by
from riverlock.snapshot.owner import life_of
from riverlock.snapshot.starts import starts
from riverlock.snapshot.timeline import is_restored
from riverlock.snapshot.verbs.repair_all import quarantine_all
from riverlock.snapshot.verbs.restore import newest_readable, plan_restore, restore
from riverlock.snapshot.verbs.restore_all import (
    adopt_older,
    decide_reset,
    give_up_cuts,
)

if TYPE_CHECKING:
    from riverlock.coordinator.resets.rules import Order
    from riverlock.core.clock import Clock
    from riverlock.snapshot.catalog import Catalog
    from riverlock.snapshot.format.cuts import cut_records
    from riverlock.snapshot.format.records import Manifest
    from riverlock.snapshot.verbs.repair_all import RepairAll
    from riverlock.snapshot.verbs.restore_all import RestoreAll

__all__ = [
    "complete_resets",
    "order_of",
    "repair_all",
    "restore_all",
    "rule_of",
    "take_up",
]

_POLL_SECONDS: Final = 0.05
# How long one who asks waits for regions that run; they take it up in any case.
_PATIENCE_SECONDS: Final = 60.0
# How often a region is looked at anew that somebody else has moved on meanwhile.
_TRIES: Final = 5


def rule_of(reset: cut_records.Reset | None) -> Reset | None:
    """Return a reset as the rules know it."""
    if reset is None:
        return None
    return Reset(number=reset.number, epochs=reset.regions)


def order_of(
    catalog: Catalog, newest: Manifest | None, last: cut_records.Reset | None
) -> Order | None:
    """Return what a region has to do about the last reset there is; None: nothing.

    Args:
        catalog: The region.
        newest: Its newest epoch.
        last: The reset.

    Raises:
        InvalidConfigError: It has no place in what it is to go back to.
    """
    standing = Standing(region=catalog.region)
    if newest is not None:
        parent = newest.parent if is_restored(newest) else None
        standing = Standing(
            region=catalog.region,
            reset=newest.reset,
            same_as=tuple(e for e in (newest.epoch, parent) if e is not None),
        )
    order = taken_up(standing, rule_of(last))
    if isinstance(order, Stray) and last is not None:
        raise InvalidConfigError(
            f"region {catalog.region!r}",
            expected=f"one of {', '.join(sorted(last.regions))}: all regions go back to"
            f" {last.name!r}",
            found="one that began since, and has epochs that belong to no such cut",
            hint="the others go on without it; begin a new store for it, or fork"
            f" {catalog.storage.uri}@{last.name} and go on with the fork",
        )
    return order


def take_up(
    catalog: Catalog, *, now_us: int, is_repair: bool = False
) -> Manifest | None:
    """Have a region that does not run go back, if it has to; return what that made.

    Where nothing is to be undone, its next run says so with its first epoch.

    Args:
        catalog: The region.
        now_us: The present.
        is_repair: Whether its newest epochs may be damaged.

    Raises:
        FencedError: It runs.
        InvalidConfigError: It has no place in what it is to go back to.
        SnapshotNotFoundError: The epoch that it is to go back to is gone.
    """
    for left in reversed(range(_TRIES)):
        last = ResetLog(catalog.storage).last()
        if last is None or not _must(catalog, last, is_repair=is_repair):
            return None
        plan = plan_restore(catalog, catalog.named(last), keep_output=last.keep_output)
        # Epochs that bear their markers are about to be undone.
        give_up_cuts(catalog, why=f"the flow went back to {last.name!r}")
        try:
            made = restore(
                catalog,
                plan,
                now_us=now_us,
                why=f"restore {last.name}",
                reset=last.number,
            )
        except (InvalidConfigError, SnapshotError):
            # A run that slept has decided one more epoch, or a newer reset has come.
            if not left:
                raise
            continue
        faults.hit("V8")
        # Its next start would do it too; nobody should see the output until then.
        withdraw_now(catalog, made)
        return made
    return None


def complete_resets(catalog: Catalog, *, now_us: int) -> None:
    """Have all regions go back that have to and do not run.

    Raises:
        RiverlockError: One cannot go back.
    """
    adopt_older(catalog)
    last = ResetLog(catalog.storage).last()
    for region in () if last is None else last.regions:
        part = catalog.of(region)
        if not _runs(part, now_us):
            _try_to_take_up(part, now_us)


def restore_all(catalog: Catalog, plan: RestoreAll, clock: Clock) -> RestoreAll:
    """Go back with all regions; return once they have, or say which have not yet.

    Raises:
        SnapshotNotFoundError: An epoch is no longer retained; nothing was changed.
        RiverlockError: A region that does not run cannot go back.
    """
    reset = decide_reset(
        catalog,
        plan.named,
        now_us=clock.now_us(),
        held=held_by(plan.named),
        keep_output=plan.keep_output,
    )
    limit = time.monotonic() + _PATIENCE_SECONDS
    while True:
        for region in reset.regions:
            part, now_us = catalog.of(region), clock.now_us()
            if not _runs(part, now_us):
                _try_to_take_up(part, now_us)
        waiting = [r for r in reset.regions if not _is_back(catalog, reset, r)]
        if not waiting or time.monotonic() > limit:
            return replace(plan, waiting=tuple(waiting))
        time.sleep(_POLL_SECONDS)


def repair_all(catalog: Catalog, plan: RepairAll, *, now_us: int) -> str | None:
    """Carry out a repair of all regions; return the quarantine, if there is one.

    Raises:
        FencedError: A region runs; stop the flow first. Nothing was changed.
    """
    for region in plan.named.regions:
        check_stopped(catalog.of(region))
    if plan.back:
        going = [(region, part.target.epoch) for region, part in plan.back.items()]
        decide_reset(catalog, plan.named, now_us=now_us, held=going)
        for region in plan.back:
            take_up(catalog.of(region), now_us=now_us, is_repair=True)
    if not plan.moved:
        return None
    return quarantine_all(catalog, plan, now_us=now_us)


def _try_to_take_up(part: Catalog, now_us: int) -> None:
    try:
        take_up(part, now_us=now_us)
    except FencedError:
        # It has begun just now, and takes it up by itself.
        return


def _is_back(catalog: Catalog, reset: cut_records.Reset, region: str) -> bool:
    """Tell whether nothing is left to undo in a region."""
    part = catalog.of(region)
    return not _must(part, reset)


def _must(
    catalog: Catalog, reset: cut_records.Reset, *, is_repair: bool = False
) -> bool:
    """Tell whether a region has anything to undo.

    Raises:
        SnapshotCorruptedError: Its newest epoch is damaged, and this is no repair.
    """
    if not is_repair:
        return isinstance(order_of(catalog, catalog.newest(), reset), GoBack)
    newest = newest_readable(catalog)
    is_hidden = newest is None or newest.epoch != catalog.epochs()[-1]
    return is_hidden or isinstance(order_of(catalog, newest, reset), GoBack)


def _runs(catalog: Catalog, now_us: int) -> bool:
    """Tell whether a region runs, or is about to."""
    # A start is withdrawn once its run has been claimed; a run that takes up a reset is
    # over once the next start is announced.
    if starts(catalog, now_us=now_us):
        return True
    run = catalog.newest_run()
    if run is not None and life_of(catalog, run).is_beating:
        return True
    return bool(starts(catalog, now_us=now_us))
