from __future__ import annotations

import dataclasses
from collections import Counter

import pytest
from tests.unit.coordinator.cuts.ledger import FAULTS, Ledger, Rules, ViolationError

from riverlock.coordinator.cuts import Permit, Protocol, RegionView, bears, permit
from riverlock.core.errors import InternalError

SEEDS = 50
SNAPSHOTS = 1000


@pytest.mark.parametrize("protocol", Protocol)
def test_money_is_constant_in_a_thousand_snapshots(protocol: Protocol) -> None:
    taken, seed = 0, 0
    rows, faults = Counter[bool](), Counter[str]()

    while taken < SNAPSHOTS:
        ledger = Ledger(seed, protocols=(protocol,))
        ledger.play()
        taken += len(ledger.taken)
        faults += ledger.faults
        is_back = {c.name: c.is_back for c in ledger.topology.channels}
        for span in (s for cut in ledger.taken for s in cut.in_flight):
            rows[is_back[span.channel]] += span.rows
        seed += 1

    assert min(faults[kind] for kind in FAULTS) > 100
    assert (rows[False] > SNAPSHOTS) == (protocol is Protocol.UNALIGNED)
    assert (rows[True] > 100) == (protocol is not Protocol.DRAIN)


def test_cuts_by_all_protocols_at_once() -> None:
    met = set()

    for seed in range(SEEDS):
        ledger = Ledger(seed)
        ledger.play(steps=500)
        met |= {cut.protocol for cut in ledger.taken}
        assert len(ledger.taken) >= len(Protocol)

    assert met == set(Protocol)


@pytest.mark.parametrize("protocol", Protocol)
def test_bounds_of_channels_stop_no_snapshot(protocol: Protocol) -> None:
    held = 0

    for seed in range(2 * SEEDS):
        ledger = Ledger(seed, protocols=(protocol,), rules=Rules(most_unread=1))
        ledger.play()
        held += ledger.held
        assert ledger.taken

    assert held > 10 * SEEDS


def _reads_past_markers(view: RegionView) -> Permit:
    ends = {each.channel.name: each.end for each in view.inputs}
    return dataclasses.replace(permit(view), ends=ends)


def _bears_however_far_it_read(
    view: RegionView, ends: dict[str, int]
) -> tuple[int, ...]:
    positions = {each.channel.name: each.position for each in view.inputs}
    places = {n for each in view.inputs for n in each.markers}
    return tuple(
        cut.number
        for cut in view.unborne
        if cut.number in places or cut.number in bears(view, positions)
    )


def _bears_before_it_is_drained(
    view: RegionView, ends: dict[str, int]
) -> tuple[int, ...]:
    early = [c.number for c in view.unborne if view.is_head(c.number)]
    return tuple({*early, *bears(view, ends)})


def _reads_while_others_drain(view: RegionView) -> Permit:
    return dataclasses.replace(permit(view), reads_sources=True)


@pytest.mark.parametrize(
    ("rules", "protocol"),
    [
        (
            Rules(permit=_reads_past_markers, bears=_bears_however_far_it_read),
            Protocol.UNALIGNED,
        ),
        (
            Rules(permit=_reads_past_markers, bears=_bears_however_far_it_read),
            Protocol.ALIGNED,
        ),
        # Consistent, but no longer what it promises: rows are in flight.
        (Rules(bears=_bears_however_far_it_read), Protocol.ALIGNED),
        (Rules(bears=_bears_before_it_is_drained), Protocol.DRAIN),
        (Rules(permit=_reads_while_others_drain), Protocol.DRAIN),
        # A region that waits until it has read what it sends itself.
        (Rules(most_unread=1, bounds_loops=True), Protocol.DRAIN),
    ],
)
def test_rules_that_are_wrong_are_found(rules: Rules, protocol: Protocol) -> None:
    def play() -> None:
        for seed in range(SEEDS):
            Ledger(seed, protocols=(protocol,), rules=rules).play()

    with pytest.raises((ViolationError, InternalError)):
        play()
