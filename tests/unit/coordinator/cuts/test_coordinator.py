from __future__ import annotations

import pytest

from riverlock.coordinator.cuts import (
    Abandon,
    Channel,
    Complete,
    CompleteCut,
    CutCoordinator,
    Decided,
    DeclareDrained,
    InFlight,
    Proposed,
    Protocol,
    TimedOut,
    Topology,
)
from riverlock.core.errors import InternalError, InvalidFlowError

PAIR = Topology(
    regions=("main", "billing"),
    channels=(Channel(name="fees", writer="main", reader="billing"),),
)


def test_a_cut_is_complete_when_every_region_has_borne_its_marker() -> None:
    coordinator = CutCoordinator(PAIR)
    coordinator.handle(Proposed(cut=1, protocol=Protocol.UNALIGNED))
    for epoch in range(3):
        markers = (1,) if epoch == 2 else ()
        event = Decided(region="main", epoch=epoch, rows={"fees": 5}, markers=markers)
        assert coordinator.handle(event) == ()

    read = {"fees": 1}
    event = Decided(region="billing", epoch=0, positions=read, markers=(1,))
    orders = coordinator.handle(event)

    in_flight = InFlight(channel="fees", first=1, end=3, rows=10)
    assert orders == (
        Complete(
            cut=CompleteCut(
                number=1,
                protocol=Protocol.UNALIGNED,
                epochs={"main": 2, "billing": 0},
                in_flight=(in_flight,),
            )
        ),
    )
    assert coordinator.open_cuts == ()
    assert coordinator.handle(event) == ()


def test_a_cut_that_takes_too_long_is_abandoned_and_says_who_did_not_answer() -> None:
    coordinator = CutCoordinator(PAIR)
    coordinator.handle(Proposed(cut=1, protocol=Protocol.ALIGNED))
    coordinator.handle(Decided(region="main", epoch=0, markers=(1,)))

    assert coordinator.handle(TimedOut(cut=1)) == (
        Abandon(cut=1, waiting=("billing",)),
    )
    assert coordinator.handle(TimedOut(cut=1)) == ()

    late = Decided(region="billing", epoch=0, positions={"fees": 1}, markers=(1,))
    assert coordinator.handle(late) == ()


def test_a_drain_ends_when_all_have_heard_of_it_and_nothing_is_unread() -> None:
    coordinator = CutCoordinator(PAIR)
    coordinator.handle(Proposed(cut=3, protocol=Protocol.DRAIN))
    coordinator.handle(Decided(region="main", epoch=0, heard=3, rows={"fees": 2}))
    unread = Decided(region="billing", epoch=0, heard=3)
    unheard = Decided(region="billing", epoch=1, heard=2, positions={"fees": 1})
    drained = Decided(region="billing", epoch=2, heard=3, positions={"fees": 1})

    assert coordinator.handle(unread) == ()
    assert coordinator.handle(unheard) == ()
    assert coordinator.handle(drained) == (DeclareDrained(cut=3),)
    again = Decided(region="billing", epoch=3, heard=3, positions={"fees": 1})
    assert coordinator.handle(again) == ()


def test_epochs_that_are_no_consistent_cut_are_our_own_bug() -> None:
    coordinator = CutCoordinator(PAIR)
    coordinator.handle(Proposed(cut=1, protocol=Protocol.UNALIGNED))
    coordinator.handle(Decided(region="main", epoch=0, markers=(1,)))

    with pytest.raises(InternalError, match="'fees' was read up to epoch 2"):
        coordinator.handle(
            Decided(region="billing", epoch=0, positions={"fees": 2}, markers=(1,))
        )


def test_a_loop_must_be_closed_by_a_back_edge() -> None:
    there = Channel(name="there", writer="a", reader="b")
    back = Channel(name="back", writer="b", reader="a")

    with pytest.raises(InvalidFlowError, match=r"flow\.loop"):
        Topology(regions=("a", "b"), channels=(there, back))
    with pytest.raises(InvalidFlowError, match="region 'b'"):
        Topology(regions=("a",), channels=(there,))
