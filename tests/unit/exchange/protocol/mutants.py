"""Protocols and connections that are wrong on purpose, each in one way."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from tests.unit.exchange.protocol.simulation import Simulation

from riverlock.exchange.protocol.floors import Floors
from riverlock.exchange.protocol.frames import Cancel, Credit, Frame, Marker, Rows
from riverlock.exchange.protocol.inbox import Inbox
from riverlock.exchange.protocol.outbox import Outbox, _Lane
from riverlock.exchange.protocol.task import TaskProtocol

__all__ = ["PATCHES", "SIMULATIONS"]


class _LosesCredit(Simulation):
    """Every third credit is lost on the way."""

    count = 0

    def arrive(self, sender: int, receiver: int) -> None:
        frames = self.connections[(sender, receiver)].frames
        if isinstance(frames[0], Credit):
            self.count += 1
            if self.count % 3 == 0:
                frames.popleft()
                return
        super().arrive(sender, receiver)


class _LosesRows(Simulation):
    """Some rows are lost on the way."""

    def arrive(self, sender: int, receiver: int) -> None:
        frames = self.connections[(sender, receiver)].frames
        if isinstance(frames[0], Rows) and self.random.random() < 0.05:
            frames.popleft()
            return
        super().arrive(sender, receiver)


class _Doubles(Simulation):
    """Some rows come twice."""

    def arrive(self, sender: int, receiver: int) -> None:
        frames = self.connections[(sender, receiver)].frames
        if isinstance(frames[0], Rows) and self.random.random() < 0.05:
            frames.appendleft(frames[0])
        super().arrive(sender, receiver)


class _Overtakes(Simulation):
    """A frame overtakes the one before it on the same connection."""

    def arrive(self, sender: int, receiver: int) -> None:
        frames = self.connections[(sender, receiver)].frames
        if len(frames) > 1 and self.random.random() < 0.1:
            frames[0], frames[1] = frames[1], frames[0]
        super().arrive(sender, receiver)


class _LosesMarkers(Simulation):
    """Some markers are lost."""

    def arrive(self, sender: int, receiver: int) -> None:
        frames = self.connections[(sender, receiver)].frames
        if isinstance(frames[0], Marker) and self.random.random() < 0.1:
            frames.popleft()
            return
        super().arrive(sender, receiver)


class _LosesCancels(Simulation):
    """Peers do not hear of cancels from each other: turns mix."""

    def arrive(self, sender: int, receiver: int) -> None:
        frames = self.connections[(sender, receiver)].frames
        if isinstance(frames[0], Cancel):
            frames.popleft()
            return
        super().arrive(sender, receiver)


SIMULATIONS: dict[str, type[Simulation]] = {
    "credit is lost": _LosesCredit,
    "rows are lost": _LosesRows,
    "rows come twice": _Doubles,
    "frames overtake": _Overtakes,
    "markers are lost": _LosesMarkers,
    "cancels are lost": _LosesCancels,
}

_put = _Lane.put
_take = Inbox.take
_next = Outbox.next
_take_in = TaskProtocol._take_in


def _marker_first(self: _Lane, frame: Rows | Marker) -> None:
    _put(self, frame)
    if isinstance(frame, Marker):
        self.frames.rotate(1)


def _uncounted(self: Inbox, peer: int, marker: Marker) -> bool:
    sent = self._open(peer, marker)
    sent.is_finished = True
    return self._tables[marker.epoch].is_complete


def _unlimited(self: Inbox, peer: int, rows: Rows) -> None:
    sent = self._open(peer, rows)
    self._accounts[peer].received += rows.size
    if rows.epoch == self.collected:
        self._accounts[peer].freed += rows.size
    sent.contents.append(rows.content)
    sent.rows += rows.count
    sent.bytes += rows.size


def _backwards(self: Inbox, epoch: int, turn: int) -> list[object] | None:
    found = _take(self, epoch, turn)
    return found if found is None else found[::-1]


def _is_stopped(outbox: Outbox) -> bool:
    return any(lane.frames and not lane.may_send() for lane in outbox._lanes)


def _next_of_one_lane(self: Outbox) -> Rows | Marker | None:
    return None if _is_stopped(self) else _next(self)


def _has_frames_in_one_lane(self: Outbox) -> bool:
    has_rows = any(lane.frames for lane in self._lanes)
    return bool(self._cancels) or (has_rows and not _is_stopped(self))


def _sleeps_over_markers(self: TaskProtocol, peer: int, frame: Frame) -> None:
    was_news = self._is_news
    _take_in(self, peer, frame)
    if isinstance(frame, Marker):
        self._is_news = was_news


def _sleeps_over_credit(self: TaskProtocol, peer: int, frame: Frame) -> None:
    touched = set(self._touched)
    _take_in(self, peer, frame)
    if isinstance(frame, Credit):
        self._touched = touched


def _forgets_all(self: Outbox, cancel: Cancel, floors: Floors) -> None:
    """A cancel drops older epochs as well."""
    self._cancels.append(cancel)
    for lane in self._lanes:
        lane.frames = deque()
        lane.waiting = 0
        lane.end_epoch = self._capped(lane.end_epoch, cancel.epoch)


Patch = tuple[type, str, Callable[..., Any]]
_UNCOUNTED: Patch = (Inbox, "finish", _uncounted)
_GREEDY: Patch = (_Lane, "may_send", lambda lane: bool(lane.frames))

# By name: what is patched, and the world in which it shows.
PATCHES: dict[str, tuple[list[Patch], type[Simulation]]] = {
    "marker overtakes rows": ([(_Lane, "put", _marker_first)], Simulation),
    "lost rows are not counted": ([_UNCOUNTED], _LosesRows),
    "doubled rows are not counted": ([_UNCOUNTED], _Doubles),
    "tables in any order": ([(Inbox, "take", _backwards)], Simulation),
    "no credit for kept rows": ([(Inbox, "_free", lambda *_: None)], Simulation),
    "no credit for void rows": ([(Inbox, "drop", lambda *_: None)], Simulation),
    "credit is never told": ([(Inbox, "owes_credit", lambda *_: False)], Simulation),
    "credit is not needed": ([_GREEDY], Simulation),
    "credit is not checked": ([_GREEDY, (Inbox, "add", _unlimited)], Simulation),
    "a full edge stops others": (
        [
            (Outbox, "next", _next_of_one_lane),
            (Outbox, "has_frames", _has_frames_in_one_lane),
        ],
        Simulation,
    ),
    "void rows are believed": ([(Floors, "is_void", lambda *_: False)], Simulation),
    "a cancel drops too much": ([(Outbox, "cancel", _forgets_all)], Simulation),
    "limits survive a cancel": (
        [(Outbox, "_capped", lambda _, end, __: end)],
        Simulation,
    ),
    "sources read on": ([(TaskProtocol, "room", lambda *_: True)], Simulation),
    "nobody wakes for a table": (
        [(TaskProtocol, "_take_in", _sleeps_over_markers)],
        Simulation,
    ),
    "nobody wakes for credit": (
        [(TaskProtocol, "_take_in", _sleeps_over_credit)],
        Simulation,
    ),
    "nobody wakes for room": (
        [(TaskProtocol, "_note_sent", lambda *_: None)],
        Simulation,
    ),
}
