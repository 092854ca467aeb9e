from __future__ import annotations

from riverlock.coordinator.cuts import (
    Channel,
    ChannelView,
    Cut,
    Phase,
    Protocol,
    RegionView,
    bears,
    permit,
)

LEFT = Channel(name="left", writer="a", reader="join")
RIGHT = Channel(name="right", writer="b", reader="join")
AGAIN = Channel(name="again", writer="join", reader="join", is_back=True)


def _view(
    protocol: Protocol,
    *,
    left: int,
    right: int,
    markers: dict[str, int],
    phase: Phase = Phase.OPEN,
    borne: bool = False,
) -> RegionView:
    """Return a region that has read so far of inputs with ten epochs each."""
    positions = {LEFT: left, RIGHT: right, AGAIN: 0}
    return RegionView(
        region="join",
        inputs=tuple(
            ChannelView(
                channel=channel,
                position=position,
                end=10,
                markers={1: markers[channel.name]} if channel.name in markers else {},
            )
            for channel, position in positions.items()
        ),
        cuts=(Cut(number=1, protocol=protocol, phase=phase),),
        borne=frozenset({1} if borne else ()),
    )


def test_aligned_holds_the_early_input_until_the_other_marker_comes() -> None:
    early = _view(Protocol.ALIGNED, left=3, right=2, markers={"left": 5})

    assert permit(early).ends == {"left": 6, "right": 10, "again": 10}
    assert permit(early).held_by == {"left": 1}
    assert bears(early, {"left": 6, "right": 10, "again": 10}) == ()

    both = _view(Protocol.ALIGNED, left=6, right=2, markers={"left": 5, "right": 7})

    assert permit(both).ends == {"left": 6, "right": 8, "again": 10}
    assert bears(both, {"left": 6, "right": 7, "again": 10}) == ()
    assert bears(both, {"left": 6, "right": 8, "again": 10}) == (1,)


def test_unaligned_bears_at_the_first_marker_and_leaves_the_rest_in_flight() -> None:
    view = _view(Protocol.UNALIGNED, left=3, right=2, markers={"left": 5})

    assert bears(view, {"left": 3, "right": 2, "again": 0}) == (1,)
    assert bears(view, {"left": 6, "right": 10, "again": 4}) == (1,)

    borne = _view(
        Protocol.UNALIGNED,
        left=3,
        right=2,
        markers={"left": 5, "right": 7},
        borne=True,
    )

    assert permit(borne).ends == {"left": 10, "right": 10, "again": 10}
    assert bears(borne, {"left": 10, "right": 10, "again": 10}) == ()


def test_a_back_edge_is_never_waited_for() -> None:
    markers = {"left": 5, "right": 7}
    view = _view(Protocol.ALIGNED, left=6, right=8, markers=markers)

    assert bears(view, {"left": 6, "right": 8, "again": 0}) == (1,)


def test_sources_wait_while_a_drain_is_under_way() -> None:
    view = _view(Protocol.DRAIN, left=10, right=10, markers={})

    assert not permit(view).reads_sources

    over = _view(Protocol.DRAIN, left=10, right=10, markers={}, phase=Phase.ABANDONED)

    assert permit(over).reads_sources


def test_in_lock_step_sources_wait_from_the_marker_until_all_have_borne_it() -> None:
    markers = {"left": 9, "right": 9}
    before = _view(Protocol.EPOCHS, left=10, right=10, markers=markers)
    after = _view(Protocol.EPOCHS, left=10, right=10, markers=markers, borne=True)

    assert permit(before).reads_sources
    assert not permit(after).reads_sources


def test_a_cut_that_was_abandoned_holds_nothing_and_is_never_borne_later() -> None:
    markers = {"left": 5, "right": 7}
    over = _view(
        Protocol.ALIGNED, left=3, right=2, markers=markers, phase=Phase.ABANDONED
    )

    assert permit(over).ends == {"left": 10, "right": 10, "again": 10}
    assert bears(over, {"left": 6, "right": 8, "again": 10}) == ()

    # A driver that has not heard of the end, after one that has read on.
    stale = _view(Protocol.UNALIGNED, left=8, right=2, markers=markers)

    assert permit(stale).ends == {"left": 10, "right": 8, "again": 10}
    assert bears(stale, {"left": 8, "right": 2, "again": 0}) == ()


def test_a_head_bears_when_it_hears_of_the_cut() -> None:
    for protocol in Protocol:
        cut = Cut(number=4, protocol=protocol)
        view = RegionView(region="a", inputs=(), cuts=(cut,))

        assert bears(view, {}) == (() if protocol is Protocol.DRAIN else (4,))

    drained = Cut(number=4, protocol=Protocol.DRAIN, phase=Phase.DRAINED)
    assert bears(RegionView(region="a", inputs=(), cuts=(drained,)), {}) == (4,)


def _among_flows(protocol: Protocol, *, borne: bool = False) -> RegionView:
    """Return a region of a flow whose cut the writer of one channel knows nothing of.

    Markers of that writer's own cuts are not ours, whatever their numbers.
    """
    inputs = (
        ChannelView(channel=LEFT, position=3, end=10, markers={1: 5}),
        ChannelView(channel=RIGHT, position=2, end=10, cuts=frozenset({7})),
    )
    return RegionView(
        region="join",
        inputs=inputs,
        cuts=(Cut(number=1, protocol=protocol),),
        borne=frozenset({1} if borne else ()),
    )


def test_a_channel_from_outside_of_a_cut_is_like_a_source() -> None:
    aligned = _among_flows(Protocol.ALIGNED)

    assert permit(aligned).ends == {"left": 6, "right": 10}
    assert bears(aligned, {"left": 6, "right": 4}) == (1,)
    assert bears(aligned, {"left": 5, "right": 4}) == ()

    for waiting in (
        _among_flows(Protocol.DRAIN),
        _among_flows(Protocol.EPOCHS, borne=True),
    ):
        assert permit(waiting).ends["right"] == 2
        assert permit(waiting).held_by["right"] == 1
        assert not permit(waiting).reads_sources


def test_a_region_that_only_reads_from_outside_is_a_head() -> None:
    alone = RegionView(
        region="join",
        inputs=(ChannelView(channel=RIGHT, position=2, end=10, cuts=frozenset()),),
        cuts=(Cut(number=1, protocol=Protocol.ALIGNED),),
    )

    assert alone.is_head(1)
    assert bears(alone, {"right": 9}) == (1,)


def test_no_head_bears_a_cut_that_not_all_flows_know_of() -> None:
    early = RegionView(
        region="join",
        inputs=(),
        cuts=(Cut(number=1, protocol=Protocol.ALIGNED, phase=Phase.PROPOSED),),
    )

    assert bears(early, {}) == ()
    assert permit(early).reads_sources
