"""Asking for a snapshot of all regions of a flow, and waiting for it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from riverlock.core.errors import InvalidConfigError, SnapshotAbandonedError
from riverlock.core.suggestions import did_you_mean
from riverlock.snapshot.format.cut_log import CutLog
from riverlock.snapshot.format.store_layout import REGIONS
from riverlock.snapshot.owner import life_of

if TYPE_CHECKING:
    from riverlock.snapshot.catalog import Catalog
    from riverlock.snapshot.format.records import CutProposal, Named

__all__ = [
    "DEFAULT_PROTOCOL",
    "PROTOCOLS",
    "TIMEOUT_US",
    "check_protocol",
    "take_cut",
]

PROTOCOLS = ("aligned", "unaligned", "drain", "epochs")
DEFAULT_PROTOCOL = "aligned"
TIMEOUT_US = 600 * 1_000_000
_POLL_SECONDS = 0.02
# Whoever runs a region says that a cut takes too long; if nobody runs, we do.
_PATIENCE_US = 5 * 1_000_000


def check_protocol(protocol: str) -> None:
    """Refuse what is no protocol.

    Raises:
        InvalidConfigError: It is none.
    """
    if protocol not in PROTOCOLS:
        raise InvalidConfigError(
            "protocol",
            expected=f"one of {', '.join(PROTOCOLS)}",
            found=repr(protocol),
            hint=did_you_mean(protocol, PROTOCOLS),
        )


def _check_runs(catalog: Catalog, name: str) -> None:
    """Refuse at once what nobody would answer."""
    entries = catalog.storage.list(REGIONS)
    # All that were claimed: a region that has just begun has no epoch yet.
    for region in {e.path.removeprefix(REGIONS).partition("/")[0] for e in entries}:
        part = catalog.of(region)
        run = part.newest_run()
        if run is not None and life_of(part, run).is_alive:
            return
    raise InvalidConfigError(
        f"snapshot {name!r} of several regions",
        expected="a flow that runs, since its regions take part in it",
        found="a store that nobody runs",
        hint="start the flow, then ask again",
    )


def _asked_before(
    cuts: CutLog, name: str, protocol: str, now_us: int
) -> CutProposal | None:
    """Return the cut of that name that is being taken, and has time left."""
    for asked in cuts.found().still:
        is_over = now_us >= asked.asked_us + asked.timeout_us
        if asked.name == name and asked.joint is None and not is_over:
            if asked.protocol == protocol:
                return asked
            raise InvalidConfigError(
                f"snapshot {name!r}",
                expected=f"the protocol by which it is being taken, {asked.protocol!r}",
                found=repr(protocol),
                hint="wait for it (`riverlock snapshots STORE`) or choose another name",
            )
    return None


def take_cut(  # noqa: PLR0913 - keywords, each with a default
    catalog: Catalog,
    name: str,
    *,
    protocol: str = DEFAULT_PROTOCOL,
    now_us: int,
    timeout_us: int = TIMEOUT_US,
    note: str = "",
) -> Named:
    """Ask the regions that run for a snapshot; return it once it is complete.

    One of that name that is being taken already is waited for: whoever asked for it may
    have died, and asks again.

    Args:
        catalog: The store.
        name: Of the snapshot.
        protocol: How regions agree on the cut.
        now_us: The present.
        timeout_us: How long regions may take.
        note: For people.

    Raises:
        InvalidConfigError: The name is taken, or is being taken by another protocol;
            there is no such protocol; no region runs.
        SnapshotAbandonedError: A region did not answer in time.
    """
    check_protocol(protocol)
    cuts = CutLog(catalog.storage)
    # Before its name is looked at: it may get it at any moment.
    proposal = _asked_before(cuts, name, protocol, now_us)
    if proposal is None:
        catalog.check_name(name)
    _check_runs(catalog, name)
    proposal = proposal or cuts.propose(
        name, protocol=protocol, asked_us=now_us, timeout_us=timeout_us, note=note
    )
    limit = time.monotonic() + (timeout_us + _PATIENCE_US) / 1_000_000
    while True:
        found = cuts.taken(proposal)
        if found is not None:
            return found
        given_up = cuts.given_up(proposal)
        if given_up is not None:
            raise SnapshotAbandonedError(
                name, store=catalog.storage.uri, why=given_up.why
            )
        if time.monotonic() > limit:
            cuts.give_up(proposal.number, "no region of the flow runs")
        time.sleep(_POLL_SECONDS)
