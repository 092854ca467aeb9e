"""The exchange over sockets: threads where that is enough, processes where they die."""

from __future__ import annotations

import logging
import os
import random
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from riverlock.core.errors import ExchangeError
from riverlock.exchange.limits import Limits
from riverlock.exchange.seam import Answer, Message, Shape, TaskLost
from riverlock.exchange.sockets.addresses import connect
from riverlock.exchange.sockets.driver import SocketDriver
from riverlock.exchange.sockets.hello import DRIVER, Hello, Secret
from riverlock.exchange.sockets.member import SocketMember, join
from riverlock.exchange.sockets.words import Invitation

LONG = 120.0


def shape(tasks: int, **limits: Any) -> Shape:
    return Shape(tasks=tasks, edges=2, first_epoch=7, limits=Limits(**limits))


def batch(*values: int) -> pa.RecordBatch:
    return pa.record_batch({"n": pa.array(values, pa.int64())})


def values(batches: tuple[pa.RecordBatch, ...] | None) -> list[int]:
    assert batches is not None
    return [n for b in batches for n in b["n"].to_pylist()]


def read(invitation: bytes) -> Invitation:
    return msgspec.msgpack.decode(invitation, type=Invitation)


@pytest.fixture(params=[None, "127.0.0.1"], ids=["file", "tcp"])
def driver(request: pytest.FixtureRequest) -> Iterator[SocketDriver]:
    driver = SocketDriver(request.param)
    yield driver
    driver.close()


@contextmanager
def joined(invitation: bytes, tasks: int) -> Iterator[list[SocketMember]]:
    """Join all tasks, each in a thread: they wait for each other."""
    found: dict[int, SocketMember] = {}

    def one(task: int) -> None:
        found[task] = join(invitation, task)

    threads = [threading.Thread(target=one, args=(n,)) for n in range(tasks)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    try:
        yield [found[n] for n in range(tasks)]
    finally:
        for member in found.values():
            member.die()


def all_at_once(actions: list[Callable[[], object]]) -> None:
    threads = [threading.Thread(target=each) for each in actions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def losses(driver: SocketDriver, count: int) -> dict[int, TaskLost]:
    found: dict[int, TaskLost] = {}
    while len(found) < count:
        event = driver.receive(LONG)
        assert event is not None
        if isinstance(event, TaskLost):
            found[event.task] = event
    return found


def test_tables_come_in_the_order_of_tasks_and_of_sending(driver: SocketDriver) -> None:
    with joined(driver.begin(shape(3)), 3) as members:
        places = driver.await_tasks(LONG)
        epochs = [m.exchange.begin(7, 0) for m in members]
        for number in (2, 0, 1):
            for peer in range(3):
                epochs[number].send(0, peer, batch(number, peer))
                epochs[number].send(0, peer, batch(10 + number))
            epochs[number].finish(0)

        found = [values(e.await_table(0, LONG)) for e in epochs]

    assert found == [[0, p, 10, 1, p, 11, 2, p, 12] for p in range(3)]
    assert [place.process for place in places] == [os.getpid()] * 3


def test_frames_larger_than_any_buffer_arrive_whole(driver: SocketDriver) -> None:
    many = batch(*range(700_000))
    with joined(driver.begin(shape(2, frame_bytes=4 << 20)), 2) as members:
        one, two = (m.exchange.begin(7, 0) for m in members)
        # Both at once: neither could go on if sending were to wait.
        one.send(0, 1, many)
        two.send(0, 0, many)
        one.finish(0)
        two.finish(0)

        for epoch in (one, two):
            found = epoch.await_table(0, LONG)
            assert found is not None
            assert pa.Table.from_batches(found).equals(pa.Table.from_batches([many]))


def test_messages_go_both_ways_and_goodbyes_are_no_deaths(driver: SocketDriver) -> None:
    with joined(driver.begin(shape(2)), 2) as members:
        driver.await_tasks(LONG)
        driver.broadcast(Message(1, b"all"))
        driver.send(1, Message(2, b"one"))
        assert [m.control.receive(LONG) for m in members] == [Message(1, b"all")] * 2
        assert members[1].control.receive(LONG) == Message(2, b"one")
        members[0].control.send(Message(3, b"x" * 100_000))
        assert driver.receive(LONG) == Answer(
            task=0, message=Message(3, b"x" * 100_000)
        )

        all_at_once([m.close for m in members])

        assert {lost.is_orderly for lost in losses(driver, 2).values()} == {True}


def test_whoever_waits_hears_that_the_generation_has_ended(
    driver: SocketDriver,
) -> None:
    invitation = driver.begin(shape(2))
    with joined(invitation, 2) as members:
        heard: list[str] = []

        def wait(act: Callable[[], object]) -> None:
            with pytest.raises(ExchangeError) as caught:
                act()
            heard.append(caught.value.reason)

        epoch = members[1].exchange.begin(7, 0)
        threads = [
            threading.Thread(target=wait, args=(act,))
            for act in (
                lambda: members[0].control.receive(None),
                lambda: members[0].wait(lambda: False, None),
                lambda: epoch.await_table(0, None),
            )
        ]
        for thread in threads:
            thread.start()
        driver.end()
        for thread in threads:
            thread.join()

        assert heard == ["ended"] * 3
    with pytest.raises(ExchangeError, match="not reached"):
        join(invitation, 0)


def test_a_driver_that_waits_hears_that_it_has_ended_the_generation(
    driver: SocketDriver,
) -> None:
    driver.begin(shape(1))
    heard: list[object] = []
    waiting = threading.Thread(target=lambda: heard.append(driver.receive(LONG)))
    waiting.start()

    driver.end()
    waiting.join()

    assert heard == [None]
    with pytest.raises(ExchangeError, match="ended"):
        driver.broadcast(Message(1))


def test_nobody_listens_once_all_have_come(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    driver = SocketDriver()
    invitation = driver.begin(shape(2))
    address = read(invitation).address
    if address.is_file:  # else the name was too long for a socket
        folder = Path(address.place).parent
        assert folder.stat().st_mode & 0o777 == 0o700

    with joined(invitation, 2):
        driver.await_tasks(LONG)

        with pytest.raises(ExchangeError, match="not reached"):
            join(invitation, 0)
        assert not list(tmp_path.iterdir())
    driver.close()


def test_only_who_knows_the_secret_is_let_in(
    driver: SocketDriver, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "riverlock")
    invitation = driver.begin(shape(1))
    known = read(invitation)
    wrong = msgspec.structs.replace(known, secret=b"?" * 32)

    with pytest.raises(ExchangeError, match="another secret"):
        join(msgspec.msgpack.encode(wrong), 0)
    for hello in (
        Hello.new(b"?" * 16, 0, DRIVER),
        Hello.new(known.generation, 5, DRIVER),
        Hello.new(known.generation, 0, 3),
    ):
        sock = connect(known.address, hello, Secret(known.secret), seconds=LONG)
        assert sock.recv(1) == b""
        sock.close()

    with joined(invitation, 1):
        driver.await_tasks(LONG)
    told = [record.getMessage() for record in caplog.records]
    assert len(told) == 4
    assert all("dropped a connection" in line for line in told)
    assert known.secret.hex() not in str(told)
    assert "secret" not in repr(known)


def test_strangers_who_stay_silent_or_are_many_are_dropped(
    driver: SocketDriver, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "riverlock")
    known = read(driver.begin(shape(1, hello_seconds=0.2, greatest_strangers=2)))
    kind = socket.AF_UNIX if known.address.is_file else socket.AF_INET
    place: Any = known.address.place
    place = place if known.address.is_file else (place, known.address.port)
    strangers = [socket.socket(kind) for _ in range(3)]
    for sock in strangers:
        sock.connect(place)

    for sock in strangers:
        sock.settimeout(LONG)
        assert sock.recv(1) == b""
        sock.close()

    told = " ".join(record.getMessage() for record in caplog.records)
    assert "too many at a time" in told
    assert "in time" in told


@pytest.mark.parametrize("seed", range(3))
def test_garbage_of_strangers_and_tasks_ends_nothing_but_their_connection(
    driver: SocketDriver, seed: int
) -> None:
    chance = random.Random(seed)
    known = read(driver.begin(shape(2)))
    kind = socket.AF_UNIX if known.address.is_file else socket.AF_INET
    place: Any = known.address.place
    place = place if known.address.is_file else (place, known.address.port)
    for _ in range(10):
        with socket.socket(kind) as sock:
            sock.connect(place)
            with suppress(OSError):
                sock.sendall(chance.randbytes(chance.randint(0, 300)))
    hello = Hello.new(known.generation, 0, DRIVER)
    task = connect(known.address, hello, Secret(known.secret), seconds=LONG)
    task.sendall(chance.randbytes(1000))

    lost = losses(driver, 1)[0]

    assert "damaged" in lost.why
    with pytest.raises(ExchangeError) as caught:
        driver.await_tasks(LONG)
    assert caught.value.peer == 0
    task.close()
    driver.end()
    with joined(driver.begin(shape(2)), 2):
        driver.await_tasks(LONG)


def test_a_task_that_does_not_answer_is_lost(driver: SocketDriver) -> None:
    limits = {"ping_seconds": 0.02, "silent_seconds": 0.2}
    known = read(driver.begin(shape(1, **limits)))
    hello = Hello.new(known.generation, 0, DRIVER)
    task = connect(known.address, hello, Secret(known.secret), seconds=LONG)

    assert "silent" in losses(driver, 1)[0].why

    task.close()


def test_a_peer_that_takes_nothing_holds_back_the_sources_and_no_more(
    driver: SocketDriver,
) -> None:
    limits = {"credit_bytes": 100, "waiting_bytes": 1000}
    with joined(driver.begin(shape(2, **limits)), 2) as (one, slow):
        for member in (one, slow):
            for edge in range(2):
                member.exchange.begin(7, 0).finish(edge)
        slow.exchange.begin(8, 0).finish(0)
        epoch, count = one.exchange.begin(8, 0), 0
        while one.exchange.room(8):
            epoch.send(0, 1, batch(count))
            count += 1
        epoch.finish(0)
        for member in (slow, one):
            first = member.exchange.begin(7, 0)
            assert first.await_table(0, LONG) == ()
            first.release(0)

        assert one.wait(lambda: one.exchange.room(8), LONG)
        found = slow.exchange.begin(8, 0).await_table(0, LONG)

        assert values(found) == list(range(count))


CHILD = """
import sys
from riverlock.exchange.seam import Message
from riverlock.exchange.sockets.member import join
import pyarrow as pa

with join(bytes.fromhex(sys.stdin.readline()), int(sys.argv[1])) as member:
    epoch = member.exchange.begin(7, 0)
    for peer in range(2):
        epoch.send(0, peer, pa.record_batch({"n": [10 * member.task + peer]}))
    epoch.finish(0)
    found = [n for b in epoch.await_table(0, None) for n in b["n"].to_pylist()]
    member.control.send(Message(1, repr(found).encode()))
    epoch.release(0)
    try:
        epoch.await_table(1, None)
    except Exception as error:
        member.control.send(Message(2, str(error).encode()))
"""


@pytest.mark.parametrize("driver", [None], indirect=True)
def test_the_death_of_a_process_is_heard_by_all(driver: SocketDriver) -> None:
    invitation = driver.begin(shape(2))
    tasks = [
        subprocess.Popen(
            [sys.executable, "-c", CHILD, str(n)], stdin=subprocess.PIPE, text=True
        )
        for n in range(2)
    ]
    try:
        for task in tasks:
            assert task.stdin is not None
            task.stdin.write(invitation.hex() + "\n")
            task.stdin.flush()
        places = driver.await_tasks(LONG)
        assert [p.process for p in places] == [t.pid for t in tasks]
        answers = {driver.receive(LONG) for _ in tasks}
        assert answers == {
            Answer(task=n, message=Message(1, f"[{n}, {10 + n}]".encode()))
            for n in range(2)
        }

        os.kill(tasks[1].pid, signal.SIGKILL)

        events = [driver.receive(LONG) for _ in range(3)]
        told = [e.message.payload for e in events if isinstance(e, Answer)]
        lost = {e.task: e.is_orderly for e in events if isinstance(e, TaskLost)}
        assert lost == {0: True, 1: False}
        assert len(told) == 1
        assert b"peer lost" in told[0]
    finally:
        for task in tasks:
            task.kill()
            task.wait()
            assert task.stdin is not None
            task.stdin.close()
