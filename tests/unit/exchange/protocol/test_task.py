"""The rules one by one; that they fit together is seen by the simulation."""

from __future__ import annotations

import pytest

from riverlock.core.errors import ExchangeError, InternalError
from riverlock.exchange.limits import Limits
from riverlock.exchange.protocol import TaskProtocol
from riverlock.exchange.protocol.events import (
    Arrived,
    CancelOrdered,
    Closing,
    EdgeFinished,
    PeerLost,
    Released,
    RowsGiven,
    Writable,
)
from riverlock.exchange.protocol.frames import (
    Cancel,
    Credit,
    Frame,
    Goodbye,
    Marker,
    Rows,
)
from riverlock.exchange.protocol.instructions import (
    End,
    HasFrames,
    LookAgain,
    Transmit,
)
from riverlock.exchange.seam import Shape


def protocol(
    *, credit: int = 100, epochs: int = 4, waiting: int = 100, edges: int = 1
) -> TaskProtocol:
    """Task 0 of two, from epoch 1 on."""
    limits = Limits(credit_bytes=credit, open_epochs=epochs, waiting_bytes=waiting)
    return TaskProtocol(0, Shape(tasks=2, edges=edges, first_epoch=1, limits=limits))


def give(task: TaskProtocol, epoch: int, size: int = 10, *, peer: int = 1) -> None:
    event = RowsGiven(
        peer=peer, edge=0, epoch=epoch, turn=0, size=size, count=1, content=epoch
    )
    task.handle(event)


def finish(task: TaskProtocol, epoch: int, turn: int = 0) -> None:
    task.handle(EdgeFinished(edge=0, epoch=epoch, turn=turn))


def rows(epoch: int, size: int = 10, *, turn: int = 0) -> Rows:
    return Rows(edge=0, epoch=epoch, turn=turn, size=size, count=1, content="theirs")


def marker(epoch: int, frames: int = 0, *, turn: int = 0) -> Marker:
    return Marker(edge=0, epoch=epoch, turn=turn, frames=frames, rows=frames)


def arrive(task: TaskProtocol, *frames: Frame) -> None:
    for frame in frames:
        task.handle(Arrived(peer=1, frame=frame))


def sent(task: TaskProtocol) -> list[Frame]:
    """Return all that goes out to the peer now."""
    found: list[Frame] = []
    while True:
        orders = task.handle(Writable(peer=1))
        frames = [o.frame for o in orders if isinstance(o, Transmit)]
        if not frames:
            return found
        found += frames


def test_rows_go_out_before_their_marker() -> None:
    task = protocol()
    give(task, 1)
    finish(task, 1)

    out = sent(task)

    assert [type(f) for f in out] == [Rows, Marker]
    assert out[1] == marker(1, 1)


def test_a_table_is_complete_with_the_last_marker_and_ordered_by_peer() -> None:
    task = protocol()
    arrive(task, rows(1), marker(1, 1))
    assert not task.is_complete(0, 1, 0)

    give(task, 1, peer=0)
    orders = task.handle(EdgeFinished(edge=0, epoch=1, turn=0))

    assert LookAgain() in orders
    assert task.is_complete(0, 1, 0)
    assert task.take(0, 1, 0) == [1, "theirs"]


def test_rows_without_credit_wait_until_it_comes() -> None:
    task = protocol(credit=15)
    for _ in range(3):
        give(task, 1)
    assert len(sent(task)) == 2  # the second one overdraws: 10 of 15 were used

    orders = task.handle(
        Arrived(peer=1, frame=Credit(edge=0, turn=-1, bytes=30, epoch=5))
    )

    assert HasFrames(peer=1) in orders
    assert len(sent(task)) == 1


def test_rows_of_the_collected_epoch_never_use_up_credit() -> None:
    task = protocol(credit=15)

    for _ in range(10):
        arrive(task, rows(1))
        assert [f for f in sent(task) if isinstance(f, Credit)]

    assert task.over is None


def test_rows_of_later_epochs_use_credit_until_theirs_is_collected() -> None:
    task = protocol(credit=15)
    finish(task, 1)
    arrive(task, marker(1), rows(2), rows(2))
    assert not [f for f in sent(task) if isinstance(f, Credit)]

    task.take(0, 1, 0)
    task.handle(Released(edge=0, epoch=1, turn=0))

    assert sent(task) == [Credit(edge=0, turn=-1, bytes=35, epoch=6)]


def test_rows_beyond_credit_end_the_generation() -> None:
    task = protocol(credit=15)

    arrive(task, marker(1), rows(2), rows(2), rows(2))

    assert isinstance(task.over, ExchangeError)
    assert task.over.reason == "protocol broken"
    assert task.over.peer == 1


def test_a_marker_that_counts_otherwise_ends_the_generation() -> None:
    task = protocol()

    arrive(task, rows(1), marker(1, 2))

    assert task.over is not None


def test_no_more_epochs_are_begun_than_the_peer_has_room_for() -> None:
    task = protocol(epochs=2)
    for epoch in (1, 2, 3):
        finish(task, epoch)

    assert [f.epoch for f in sent(task) if isinstance(f, Marker)] == [1, 2]
    assert task.room(2)
    assert not task.room(3)


def test_sources_stop_while_too_much_waits() -> None:
    task = protocol(credit=5, waiting=20)
    for _ in range(3):
        give(task, 1)
    assert not task.room(1)

    (transmit, *others) = task.handle(Writable(peer=1))
    assert isinstance(transmit, Transmit)
    assert not task.room(1)  # no credit for the others
    arrive(task, Credit(edge=0, turn=-1, bytes=15, epoch=5))
    orders = task.handle(Writable(peer=1))

    assert LookAgain() in orders
    assert task.room(1)
    assert others == []


def test_a_cancel_drops_what_waits_and_what_came_and_is_passed_on() -> None:
    task = protocol()
    give(task, 1)
    arrive(task, rows(1))

    task.handle(CancelOrdered(epoch=1, turn=5))

    assert sent(task) == [Cancel(epoch=1, turn=5)]
    assert task.is_void(1, 0)
    assert task.status()[0].rows_in == 0
    arrive(task, rows(1), marker(1, 2))  # on their way before the peer heard of it
    assert task.status()[0].rows_in == 0
    arrive(task, Cancel(epoch=1, turn=5), rows(1, turn=6))
    assert task.status()[0].rows_in == 1


def test_a_cancel_heard_from_a_peer_counts_as_well() -> None:
    task = protocol()

    orders = task.handle(Arrived(peer=1, frame=Cancel(epoch=1, turn=5)))

    assert LookAgain() in orders
    assert task.is_void(1, 4)
    give(task, 1)  # of the old turn
    assert sent(task) == [Cancel(epoch=1, turn=5)]
    assert task.handle(CancelOrdered(epoch=1, turn=5)) == ()


def test_a_cancel_begins_a_released_epoch_again() -> None:
    task = protocol()
    finish(task, 1)
    arrive(task, marker(1))
    task.take(0, 1, 0)
    task.handle(Released(edge=0, epoch=1, turn=0))

    task.handle(CancelOrdered(epoch=1, turn=2))
    finish(task, 1, turn=2)
    arrive(task, Cancel(epoch=1, turn=2), rows(1, turn=2), marker(1, 1, turn=2))

    assert task.take(0, 1, 2) == ["theirs"]


def test_two_turns_of_an_epoch_without_a_cancel_end_the_generation() -> None:
    task = protocol()

    finish(task, 1)
    arrive(task, marker(1, turn=3))

    assert task.over is not None


def test_the_death_of_a_peer_ends_the_generation() -> None:
    task = protocol()

    (order,) = task.handle(PeerLost(peer=1, why="killed"))

    assert isinstance(order, End)
    assert order.error.peer == 1
    assert task.handle(Closing()) == ()


def test_a_peer_that_has_said_goodbye_does_not_die() -> None:
    task = protocol()
    arrive(task, Goodbye())

    assert task.handle(PeerLost(peer=1, why="end of file")) == ()
    with pytest.raises(ExchangeError) as caught:
        task.is_complete(0, 1, 0)
    assert caught.value.reason == "peer left"


def test_goodbye_comes_after_all_else() -> None:
    task = protocol(credit=5)
    for _ in range(2):
        give(task, 1)
    task.handle(Closing())
    assert [type(f) for f in sent(task)] == [Rows]
    assert not task.has_parted()

    arrive(task, Credit(edge=0, turn=-1, bytes=15, epoch=5))

    assert [type(f) for f in sent(task)] == [Rows, Goodbye]
    assert task.has_parted()
    assert task.handle(PeerLost(peer=1, why="end of file")) == (LookAgain(),)


def test_misuse_is_an_error_of_ours() -> None:
    task = protocol()
    with pytest.raises(InternalError):
        task.take(0, 1, 0)
    with pytest.raises(InternalError):
        task.handle(Released(edge=0, epoch=1, turn=0))
    finish(task, 1)
    with pytest.raises(InternalError):
        give(task, 1)
    with pytest.raises(InternalError):
        give(task, 3)


def test_status_tells_who_waits_for_whom() -> None:
    task = protocol(credit=1)
    give(task, 1)
    give(task, 1)
    finish(task, 1)
    sent(task)
    arrive(task, rows(1))

    (status,) = task.status()

    assert (status.epoch, status.waits_for) == (1, (1,))
    assert (status.rows_in, status.bytes_in) == (1, 10)
    assert status.bytes_out == {1: 10}
