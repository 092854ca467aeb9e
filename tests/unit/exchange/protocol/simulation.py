"""Generations of tasks under a seeded scheduler, which is not their friend.

Everything that may happen is one step: a frame arrives, a connection takes another
frame, a task does one thing, the driver one. The scheduler picks any of them, so that
frames of different connections overtake each other as they like, consumers are slow,
and the driver's orders reach some tasks long before others. It also cancels epochs and
kills tasks. What a task takes from a table is compared with what was sent.

A task that has found nothing to do sleeps until it is told to look again, and a
connection is asked for frames only after it was told that there are some: whoever is
forgotten sleeps for ever, and the world stands still. That is the deadlock looked for.
"""

from __future__ import annotations

import random
from collections import Counter, defaultdict, deque
from dataclasses import dataclass, field
from typing import assert_never

from riverlock.exchange.limits import Limits
from riverlock.exchange.protocol import TaskProtocol
from riverlock.exchange.protocol.events import (
    Arrived,
    CancelOrdered,
    Closing,
    EdgeFinished,
    Event,
    PeerLost,
    Released,
    RowsGiven,
    Writable,
)
from riverlock.exchange.protocol.frames import Frame
from riverlock.exchange.protocol.instructions import (
    End,
    HasFrames,
    LookAgain,
    Transmit,
)
from riverlock.exchange.seam import Shape

__all__ = ["Simulation", "ViolationError"]

# A row: where it was made (epoch, turn, edge, task) and the how manieth it was.
Row = tuple[int, int, int, int, int]
GREATEST_ROW = 7
ROWS_IN_A_READ = 3


class ViolationError(Exception):
    """Something happened that must not."""


@dataclass
class Order:
    """What the driver tells a task; turn and cancelled epoch, or an epoch to run."""

    epoch: int
    turn: int
    is_cancel: bool = False


@dataclass
class Work:
    """How far a task is with a turn of an epoch."""

    epoch: int
    turn: int
    reads: int  # so many more of its share of the input
    edge: int = 0  # whose table comes next
    has_read: bool = False
    in_hand: list[Row] | None = None  # a table that was taken and not released


@dataclass
class Connection:
    """One direction between two tasks: frames on their way, in order."""

    room: int
    frames: deque[Frame] = field(default_factory=deque)
    is_asked: bool = False


class Task:
    """A process: its protocol, and a main loop that prefers older epochs."""

    def __init__(self, world: Simulation, number: int, shape: Shape) -> None:
        self.world = world
        self.number = number
        self.shape = shape
        self.protocol = world.make_protocol(number, shape)
        self.orders: deque[Order] = deque()
        self.work: dict[int, Work] = {}
        self.is_awake = True
        self.is_alive = True
        self.is_closing = False

    def handle(self, event: Event) -> None:
        for order in self.protocol.handle(event):
            match order:
                case HasFrames():
                    self.world.connection(self.number, order.peer).is_asked = True
                case Transmit():
                    to = self.world.connection(self.number, order.peer)
                    to.frames.append(order.frame)
                    to.is_asked = True
                case LookAgain():
                    self.is_awake = True
                case End():
                    self.world.on_end(self, order.error)
                case _:
                    assert_never(order)
        self.world.check_bounds(self)

    def act(self) -> None:
        """Do one thing, or fall asleep."""
        if self.orders and (not self.work or self.world.random.random() < 0.5):
            self._obey(self.orders.popleft())
        elif not any(self._advance(self.work[e]) for e in sorted(self.work)):
            self.is_awake = bool(self.orders)

    def _obey(self, order: Order) -> None:
        if order.is_cancel:
            self.work = {e: w for e, w in self.work.items() if e < order.epoch}
            self.handle(CancelOrdered(epoch=order.epoch, turn=order.turn))
        else:
            reads = self.world.random.randint(0, 4)
            self.work[order.epoch] = Work(order.epoch, order.turn, reads)

    def _advance(self, work: Work) -> bool:
        """Do one thing for an epoch; tell whether there was any."""
        if self.protocol.is_void(work.epoch, work.turn):
            # The driver's own order has not come yet.
            self.world.seen["heard from a peer"] += 1
            del self.work[work.epoch]
            return True
        if work.in_hand is not None:
            self._release(work)
            return True
        is_turn = not self.world.is_strict or work.epoch == min(self.work)
        if is_turn and work.edge < self.shape.edges and self._take(work):
            return True
        if not work.has_read and self._may_read(work):
            self._read(work)
            return True
        return False

    def _may_read(self, work: Work) -> bool:
        before = self.work.get(work.epoch - 1)
        is_next = before is None or before.has_read
        has_room = self.protocol.room(work.epoch)
        self.world.seen["no room"] += not has_room
        return is_next and has_room

    def _read(self, work: Work) -> None:
        if work.reads:
            work.reads -= 1
            self._send(work, 0, self.world.random.randint(1, ROWS_IN_A_READ))
        else:
            work.has_read = True
            self._finish(work, 0)

    def _take(self, work: Work) -> bool:
        place = (work.edge, work.epoch, work.turn)
        if not self.protocol.is_complete(*place):
            return False
        found = self.protocol.take(*place)
        rows = [row for content in found for row in _rows(content)]
        self.world.check_table(self.number, work, rows)
        work.in_hand = rows
        return True

    def _release(self, work: Work) -> None:
        """Compute: send rows on the next edge, and be done with the table."""
        rows, edge = work.in_hand, work.edge
        assert rows is not None
        work.in_hand = None
        work.edge += 1
        where = {"edge": edge, "epoch": work.epoch, "turn": work.turn}
        is_early = self.world.random.random() < 0.5
        if is_early:
            self.handle(Released(**where))
        if work.edge < self.shape.edges:
            self._send(work, work.edge, len(rows))
            self._finish(work, work.edge)
        if not is_early:
            self.handle(Released(**where))
        if work.edge == self.shape.edges and work.epoch in self.work:
            del self.work[work.epoch]
            self.world.voted(self.number, work)

    def _send(self, work: Work, edge: int, count: int) -> None:
        """Send rows, in frames of one or two, to anybody."""
        sent = self.world.sent
        while count and not self.protocol.is_void(work.epoch, work.turn):
            peer = self.world.random.randrange(self.shape.tasks)
            number = min(count, self.world.random.randint(1, 2))
            count -= number
            rows = []
            place = (self.number, peer, work.epoch, work.turn, edge)
            for _ in range(number):
                row = (work.epoch, work.turn, edge, self.number, len(sent[place]))
                sent[place].append(row)
                rows.append(row)
            event = RowsGiven(
                peer=peer,
                edge=edge,
                epoch=work.epoch,
                turn=work.turn,
                size=self.world.random.randint(1, GREATEST_ROW),
                count=number,
                content=rows,
            )
            self.handle(event)

    def _finish(self, work: Work, edge: int) -> None:
        self.handle(EdgeFinished(edge=edge, epoch=work.epoch, turn=work.turn))


def _rows(content: object) -> list[Row]:
    assert isinstance(content, list)
    return content


class Simulation:
    """One seed, played from start to end."""

    protocol_type: type[TaskProtocol] = TaskProtocol

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        pick = self.random.choice
        self.limits = Limits(
            credit_bytes=pick((1, 2, 5, 20, 100)),
            open_epochs=pick((1, 2, 3, 4)),
            waiting_bytes=pick((1, 5, 20, 200)),
        )
        self.tasks_count = self.random.randint(1, 4)
        self.edges = self.random.randint(1, 3)
        self.ahead = self.random.randint(1, 5)
        self.epochs = self.random.randint(2, 7)
        # What may go wrong, and how often.
        self.troubles = {
            "cancel": pick((0.0, 0.01, 0.05)),
            "kill": pick((0.0, 0.0, 0.003, 0.01)),
        }
        # Whether tasks finish an epoch before they take tables of the next one.
        self.is_strict = pick((True, False))
        self.speeds = [pick((1, 1, 5, 20)) for _ in range(self.tasks_count)]
        self.seen: Counter[str] = Counter()
        self.sent: dict[tuple[int, int, int, int, int], list[Row]]
        self.tasks: list[Task] = []
        self.decided = 0
        self.begun = 0
        self.turn = 0
        self.votes: dict[tuple[int, int], set[int]] = {}
        self._begin_generation()

    def make_protocol(self, number: int, shape: Shape) -> TaskProtocol:
        """Return the protocol of a task; mutants return another one."""
        return self.protocol_type(number, shape)

    def connection(self, sender: int, receiver: int) -> Connection:
        return self.connections[(sender, receiver)]

    # The driver.

    def _begin_generation(self) -> None:
        shape = Shape(
            tasks=self.tasks_count,
            edges=self.edges,
            first_epoch=self.decided,
            limits=self.limits,
        )
        self.seen["generation"] += 1
        self.is_over = False
        self.sent = defaultdict(list)
        pairs = [
            (a, b) for a in range(shape.tasks) for b in range(shape.tasks) if a != b
        ]
        self.connections = {
            p: Connection(room=self.random.randint(1, 4)) for p in pairs
        }
        self.tasks = [Task(self, n, shape) for n in range(shape.tasks)]
        self.begun = self.decided
        self.votes = {}

    def _drive(self) -> None:
        """Begin an epoch, perhaps a few ahead."""
        self.turn += 1
        self._order(Order(self.begun, self.turn))
        self.votes[(self.begun, self.turn)] = set()
        self.begun += 1

    def _may_begin(self) -> bool:
        return self.begun < min(self.epochs, self.decided + self.ahead)

    def _order(self, order: Order) -> None:
        for task in self.tasks:
            task.orders.append(order)
            task.is_awake = True

    def _cancel(self) -> None:
        self.seen["cancel"] += 1
        epoch = self.random.randint(self.decided, self.begun - 1)
        self.turn += 1
        self.votes = {at: v for at, v in self.votes.items() if at[0] < epoch}
        self._order(Order(epoch, self.turn, is_cancel=True))
        self.begun = epoch

    def voted(self, number: int, work: Work) -> None:
        """Take a vote; those of cancelled turns come too late."""
        found = self.votes.get((work.epoch, work.turn))
        if found is None:
            self.seen["late vote"] += 1
            return
        found.add(number)
        while len(self._votes_of(self.decided)) == self.tasks_count:
            self.decided += 1

    def _votes_of(self, epoch: int) -> set[int]:
        return next((v for (e, _), v in self.votes.items() if e == epoch), set())

    def _kill(self, task: Task) -> None:
        """A process dies: what it has sent arrives, or some of it does not."""
        self.seen["kill"] += 1
        task.is_alive = False
        self.is_over = True
        for (sender, _), connection in self.connections.items():
            if sender == task.number:
                lost = self.random.randint(0, len(connection.frames))
                for _ in range(lost):
                    connection.frames.pop()

    # The scheduler.

    def play(self, *, chaos: int = 600, calm: int = 20_000) -> None:
        """Play with troubles, then without, until all epochs are decided.

        Raises:
            ViolationError: A promise was broken.
        """
        for step in range(chaos + calm):
            if self.is_over and self.random.random() < 0.05:
                self._begin_generation()
            if self.decided == self.epochs and not self.is_over:
                self._close()
                return
            if step < chaos and not self.is_over:
                self._trouble()
            if not self._step():
                if not self.is_over:
                    raise ViolationError(f"deadlock: {self._standstill()}")
                self._begin_generation()
        raise ViolationError("it does not end")

    def _trouble(self) -> None:
        roll = self.random.random()
        if roll < self.troubles["kill"]:
            self._kill(self.random.choice(self.tasks))
        elif roll < sum(self.troubles.values()) and self.begun > self.decided:
            self._cancel()

    def _step(self) -> bool:
        """Let one thing happen; tell whether there was any."""
        steps: list[tuple[str, object, float]] = []
        if self._may_begin() and not self.is_over:
            steps.append(("drive", None, 1.0))
        steps += [
            ("act", t, 1.0 / self.speeds[t.number])
            for t in self.tasks
            if t.is_awake and t.is_alive and t.protocol.over is None
        ]
        for pair, connection in self.connections.items():
            if connection.frames and self.tasks[pair[1]].is_alive:
                steps.append(("arrive", pair, 1.0))
            elif self.is_over and not self.tasks[pair[0]].is_alive:
                steps.append(("lost", pair, 0.2))
            has_room = len(connection.frames) < connection.room
            if connection.is_asked and has_room and self.tasks[pair[0]].is_alive:
                steps.append(("write", pair, 1.0))
        if not steps:
            return False
        weights = [weight for _, _, weight in steps]
        what, whom, _ = self.random.choices(steps, weights)[0]
        self._let(what, whom)
        return True

    def _let(self, what: str, whom: object) -> None:
        if what == "drive":
            self._drive()
        elif isinstance(whom, Task):
            whom.act()
        elif isinstance(whom, tuple):
            sender, receiver = whom
            if what == "arrive":
                self.arrive(sender, receiver)
            elif what == "lost":
                self.tasks[receiver].handle(PeerLost(peer=sender, why="killed"))
                del self.connections[(sender, receiver)]
                self.connections[(sender, receiver)] = Connection(room=0)
            else:
                self.connections[(sender, receiver)].is_asked = False
                self.tasks[sender].handle(Writable(peer=receiver))

    def arrive(self, sender: int, receiver: int) -> None:
        """Let the first frame of a connection arrive; mutants do not always."""
        frame = self.connections[(sender, receiver)].frames.popleft()
        self.tasks[receiver].handle(Arrived(peer=sender, frame=frame))

    def _close(self) -> None:
        """Everybody leaves; nobody may take that for a death."""
        for task in self.tasks:
            task.is_closing = True
            task.is_awake = False
            task.handle(Closing())
        while self._step():
            pass
        for task in self.tasks:
            if not task.protocol.has_parted():
                raise ViolationError(f"task {task.number} cannot leave")

    # The oracle.

    def on_end(self, task: Task, error: Exception) -> None:
        """Check that a generation ends only because somebody was killed."""
        if not self.is_over:
            raise ViolationError(f"task {task.number} ended for no reason: {error}")
        task.is_alive = False

    def check_table(self, number: int, work: Work, rows: list[Row]) -> None:
        """Compare a table with what was sent, in the order of peers."""
        expected = [
            row
            for peer in range(self.tasks_count)
            for row in self.sent[(peer, number, work.epoch, work.turn, work.edge)]
        ]
        if rows != expected:
            raise ViolationError(
                f"task {number}, edge {work.edge}, epoch {work.epoch}, turn"
                f" {work.turn}: {rows}, expected {expected}"
            )
        self.seen["table"] += 1
        self.seen["row"] += len(rows)

    def check_bounds(self, task: Task) -> None:
        """Compare what is kept with what may be."""
        limits, most = self.limits, 2 * GREATEST_ROW
        for edge in range(self.edges):
            inbox = task.protocol.inbox(edge)
            kept = inbox.later_bytes
            if kept > self.tasks_count * (limits.credit_bytes - 1 + GREATEST_ROW):
                raise ViolationError(f"task {task.number} keeps {kept} bytes")
            self.seen["kept"] = max(self.seen["kept"], kept)
            self.seen["open"] = max(self.seen["open"], inbox.open_epochs)
            if inbox.open_epochs > limits.open_epochs:
                raise ViolationError(f"{inbox.open_epochs} epochs are open")
        waiting = sum(
            size for s in task.protocol.status()[:1] for size in s.bytes_out.values()
        )
        if waiting >= limits.waiting_bytes + ROWS_IN_A_READ * most:
            raise ViolationError(f"{waiting} bytes wait on edge 0")

    def _standstill(self) -> str:
        states = [
            f"task {t.number}: {t.protocol.status()}, works on {list(t.work.values())}"
            for t in self.tasks
        ]
        return "; ".join(states)
