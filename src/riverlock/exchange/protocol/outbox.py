"""What waits to be sent to one peer."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from riverlock.exchange.protocol.frames import Cancel, Marker, Rows

if TYPE_CHECKING:
    from riverlock.exchange.protocol.floors import Floors
    from riverlock.exchange.protocol.frames import Credit
    from riverlock.exchange.seam import Shape

__all__ = ["Outbox"]


class _Lane:
    """One edge: what waits, in order, and how far the peer lets us send."""

    def __init__(self, shape: Shape) -> None:
        self.frames: deque[Rows | Marker] = deque()
        self.waiting = 0
        self.sent = 0
        self.most_bytes = shape.limits.credit_bytes
        self.end_epoch = shape.first_epoch + shape.limits.open_epochs

    def put(self, frame: Rows | Marker) -> None:
        self.frames.append(frame)
        if isinstance(frame, Rows):
            self.waiting += frame.size

    def may_send(self) -> bool:
        if not self.frames or self.frames[0].epoch >= self.end_epoch:
            return False
        # A frame may be larger than all credit: it goes if any is left.
        return isinstance(self.frames[0], Marker) or self.sent < self.most_bytes

    def pop(self) -> Rows | Marker:
        frame = self.frames.popleft()
        if isinstance(frame, Rows):
            self.waiting -= frame.size
            self.sent += frame.size
        return frame

    def drop(self, floors: Floors) -> None:
        kept = [f for f in self.frames if not floors.is_void(f.epoch, f.turn)]
        self.frames = deque(kept)
        self.waiting = sum(f.size for f in kept if isinstance(f, Rows))


class Outbox:
    """Frames for one peer, an edge beside the other: a full one stops no other."""

    def __init__(self, shape: Shape) -> None:
        """Begin with the credit that everybody has at the beginning."""
        self._open_epochs = shape.limits.open_epochs
        self._lanes = [_Lane(shape) for _ in range(shape.edges)]
        self._cancels: deque[Cancel] = deque()

    @property
    def waiting(self) -> int:
        """How many bytes of rows wait."""
        return sum(lane.waiting for lane in self._lanes)

    @property
    def end_epoch(self) -> int:
        """The first epoch that the peer does not take yet, on some edge."""
        return min(lane.end_epoch for lane in self._lanes)

    @property
    def is_empty(self) -> bool:
        """Whether everything is on its way."""
        return not self._cancels and not any(lane.frames for lane in self._lanes)

    def waiting_on(self, edge: int) -> int:
        """Return how many bytes of an edge wait."""
        return self._lanes[edge].waiting

    def put(self, frame: Rows | Marker) -> None:
        """Add a frame at the end of its edge."""
        self._lanes[frame.edge].put(frame)

    def has_frames(self) -> bool:
        """Tell whether ``next`` would return a frame."""
        return bool(self._cancels) or any(lane.may_send() for lane in self._lanes)

    def next_cancel(self) -> Cancel | None:
        """Return the next cancel. It may overtake rows, never the other way round."""
        return self._cancels.popleft() if self._cancels else None

    def next(self) -> Rows | Marker | None:
        """Return the next rows: of the oldest epoch that has any, lowest edge first."""
        ready = [lane for lane in self._lanes if lane.may_send()]
        if not ready:
            return None
        return min(ready, key=lambda lane: lane.frames[0].epoch).pop()

    def credited(self, credit: Credit, floors: Floors) -> None:
        """Take up credit, which the peer may have given before it heard of a cancel."""
        lane = self._lanes[credit.edge]
        lane.most_bytes = max(lane.most_bytes, credit.bytes)
        cancelled = floors.first_epoch_since(credit.turn)
        lane.end_epoch = max(lane.end_epoch, self._capped(credit.epoch, cancelled))

    def cancel(self, cancel: Cancel, floors: Floors) -> None:
        """Drop what is void, and have the peer told."""
        self._cancels.append(cancel)
        for lane in self._lanes:
            lane.drop(floors)
            lane.end_epoch = self._capped(lane.end_epoch, cancel.epoch)

    def clear(self) -> None:
        """Drop everything: the peer has gone."""
        self._cancels.clear()
        for lane in self._lanes:
            lane.frames.clear()
            lane.waiting = 0

    def _capped(self, end_epoch: int, cancelled: int | None) -> int:
        """Return a limit of epochs after a cancel: the peer is not past that epoch."""
        if cancelled is None:
            return end_epoch
        return min(end_epoch, cancelled + self._open_epochs)
