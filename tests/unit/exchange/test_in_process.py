from __future__ import annotations

import threading

import pyarrow as pa
import pytest

from riverlock.core.errors import EpochAbortedError, ExchangeError
from riverlock.exchange.in_process import InProcessDriver
from riverlock.exchange.limits import Limits
from riverlock.exchange.seam import (
    Answer,
    DriverControl,
    Member,
    Message,
    Shape,
    TaskLost,
)

SHAPE = Shape(tasks=2, edges=2, first_epoch=7, limits=Limits())


def batch(*values: int) -> pa.RecordBatch:
    return pa.record_batch({"n": list(values)})


def values(batches: tuple[pa.RecordBatch, ...] | None) -> list[int]:
    assert batches is not None
    return [n for b in batches for n in b["n"].to_pylist()]


def test_two_tasks_exchange_two_edges() -> None:
    driver = InProcessDriver()
    as_seam: DriverControl = driver
    invitation = as_seam.begin(SHAPE)
    found: dict[int, list[int]] = {}

    def task(number: int) -> None:
        member: Member
        with driver.join(invitation, number) as member:
            order = member.control.receive(10)
            assert order is not None
            epoch = member.exchange.begin(7, 0)
            for peer in range(2):
                epoch.send(0, peer, batch(10 * number + peer))
            epoch.finish(0)
            rows = values(epoch.await_table(0, 10))
            epoch.release(0)
            epoch.send(1, 0, batch(*rows))
            epoch.finish(1)
            found[number] = values(epoch.await_table(1, 10))
            epoch.release(1)
            member.control.send(Message(2, order.payload))

    threads = [threading.Thread(target=task, args=(n,)) for n in range(2)]
    for thread in threads:
        thread.start()
    as_seam.await_tasks(10)
    as_seam.broadcast(Message(1, b"go"))
    for thread in threads:
        thread.join()

    assert found == {0: [0, 10, 1, 11], 1: []}
    events = [driver.receive(10) for _ in range(4)]
    assert {e.task for e in events if isinstance(e, TaskLost) and e.is_orderly} == {
        0,
        1,
    }
    assert Answer(task=1, message=Message(2, b"go")) in events
    driver.close()


def test_what_was_sent_of_a_cancelled_turn_is_dropped() -> None:
    driver = InProcessDriver()
    invitation = driver.begin(SHAPE)
    one, two = (driver.join(invitation, n) for n in range(2))
    old = one.exchange.begin(7, 0)
    old.send(0, 0, batch(1))
    old.finish(0)

    for member in (one, two):
        member.exchange.cancel(7, 3)

    with pytest.raises(EpochAbortedError):
        old.send(0, 0, batch(2))
    for member in (one, two):
        member.exchange.begin(7, 3).finish(0)
    assert one.exchange.begin(7, 3).await_table(0, 10) == ()


def test_a_task_that_dies_ends_the_generation() -> None:
    driver = InProcessDriver()
    invitation = driver.begin(SHAPE)
    one, two = (driver.join(invitation, n) for n in range(2))

    two.die()

    with pytest.raises(ExchangeError) as caught:
        one.exchange.begin(7, 0).await_table(0, 10)
    assert caught.value.peer == 1
    assert driver.receive(10) == TaskLost(task=1, why="its connection was closed")


def test_whoever_waits_for_anything_hears_that_the_driver_has_ended_it() -> None:
    driver = InProcessDriver()
    invitation = driver.begin(SHAPE)
    member = driver.join(invitation, 0)
    ending = threading.Timer(0.01, driver.end)
    ending.start()

    with pytest.raises(ExchangeError) as caught:
        member.wait(lambda: member.control.has_message, 10)

    assert caught.value.reason == "ended"
    with pytest.raises(ExchangeError):
        member.control.receive(10)
    with pytest.raises(ExchangeError):
        driver.join(invitation, 1)
    ending.join()


def test_sources_stop_until_a_slow_task_takes_its_rows() -> None:
    driver = InProcessDriver()
    limits = Limits(credit_bytes=100, waiting_bytes=1000)
    shape = Shape(tasks=2, edges=1, first_epoch=1, limits=limits)
    invitation = driver.begin(shape)
    one, slow = (driver.join(invitation, n) for n in range(2))
    for member in (one, slow):
        member.exchange.begin(1, 0).finish(0)
    slow.exchange.begin(2, 0).finish(0)
    epoch = one.exchange.begin(2, 0)
    count = 0
    while one.exchange.room(2):
        epoch.send(0, 1, batch(count))
        count += 1
    epoch.finish(0)

    (status,) = one.exchange.status()
    assert status.bytes_out[1] >= 1000
    for member in (slow, one):
        first = member.exchange.begin(1, 0)
        assert first.take(0) == ()
        first.release(0)

    assert one.wait(lambda: one.exchange.room(2), 10)
    assert values(slow.exchange.begin(2, 0).take(0)) == list(range(count))
