"""The sinks of a run that begins: what waits for them, and opening them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from riverlock.connectors.orphans import Unfinished, unfinished
from riverlock.connectors.outputs import check_outputs, sink_owner
from riverlock.core.guarantees import AT_MOST_ONCE
from riverlock.driver.starting.sink_wait import Openings
from riverlock.snapshot.past import StorePast
from riverlock.snapshot.verbs.restore import is_open

if TYPE_CHECKING:
    from collections.abc import Mapping

    from riverlock.connectors.base.committer import Committer
    from riverlock.program.program import Program
    from riverlock.snapshot.catalog import Catalog
    from riverlock.snapshot.format.records import Flow as FlowRecord
    from riverlock.snapshot.format.records import Manifest, Run

__all__ = ["Arrears", "opened_sinks", "waiting_output"]


def waiting_output(
    catalog: Catalog, flow: Program, newest: Manifest | None
) -> Unfinished:
    """Return what is to be done about output of the newest epoch.

    Raises:
        InvalidConfigError: Rows wait for a sink that the flow has not, or has as one of
            another kind.
    """
    sinks = {w.uid: w.sink for w in flow.writes}
    if newest is not None and newest.guarantee == AT_MOST_ONCE:
        return Unfinished(epoch=newest.epoch)  # nothing waits: see coordinator/delivery
    if newest is not None:
        check_outputs(newest, {uid: sink.kind for uid, sink in sinks.items()})
    return unfinished(
        newest, sinks, is_open=is_open(catalog, newest), abandoned=flow.abandoned
    )


@dataclass(frozen=True)
class Arrears:
    """Sees to output that earlier runs have decided and not committed.

    Asked of every epoch that a run finds: one that was thought dead may have decided
    one more after the start has looked.
    """

    catalog: Catalog
    flow: Program
    flow_id: str

    def __call__(self, newest: Manifest) -> frozenset[str]:
        """Complete what waits for sinks that are gone; return whom it is not for.

        Raises:
            InvalidConfigError: Rows wait for a sink that the flow has not.
            RiverlockError: They could not be committed; the next start tries again.
        """
        found = waiting_output(self.catalog, self.flow, newest)
        found.complete(self.flow_id)
        return found.settled


def opened_sinks(
    catalog: Catalog,
    committers: Mapping[str, Committer],
    flow: FlowRecord,
    run: Run,
) -> Openings:
    """Open the sinks now, so that what is wrong ends the start.

    Who is away is waited for later.

    Raises:
        RiverlockError: A sink cannot be used.
    """
    # A run that is fenced only now may have decided one more before.
    past = StorePast(catalog, catalog.newest())
    owners = {u: sink_owner(flow, u, run, past) for u in committers}
    openings = Openings(committers, owners)
    openings.attempt()
    return openings
