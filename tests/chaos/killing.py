"""Random kills: a flow lives, is killed at a random moment, and lives again.

Who is killed: mostly the driver, at times its virtual machine (the driver must notice,
and end) or a Python worker (the run must go on). The next driver starts at once, while
what the one before has left behind may still be at work.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Protocol

from tests.chaos.children import Child, alive
from tests.chaos.oracle import Verdict
from tests.chaos.processes import jvm_of, workers_of

_KINDS = ("driver",) * 5 + ("jvm",) * 2 + ("worker",) * 3
# Hundreds of kills are done beside other work: nothing here is a measurement.
_PATIENCE_SECONDS = 3_600.0
# How long the commits of a decided epoch may take, and the first part of a start.
_COMMIT_SECONDS, _START_SECONDS = 0.15, 6.0


@dataclass(frozen=True, kw_only=True)
class Life:
    """How a driver is started; only the last one runs to the end of the input."""

    parallelism: int
    epoch_rows: int


class Victim(Protocol):
    """A flow to be killed, and what it must have made in the end."""

    store: Path

    @property
    def epoch_rows(self) -> Sequence[int]:
        """Rows of an epoch, to choose from; few, so that the input lasts."""
        ...

    @property
    def last_rows(self) -> int:
        """Rows of an epoch of the last life, which hurries."""
        ...

    def command(self, life: Life) -> tuple[str, ...]:
        """Return the module and the arguments of a driver that ends with its input."""
        ...

    def verdict(self) -> Verdict:
        """Compare everything with an independent computation."""
        ...


@dataclass(frozen=True, kw_only=True)
class Kill:
    """One SIGKILL."""

    kind: str
    moment: str
    epoch: int | None  # the newest that was decided
    life: Life
    words: str  # the last ones of a driver that lost its virtual machine

    def __str__(self) -> str:
        where = "before any epoch" if self.epoch is None else f"epoch {self.epoch}"
        said = f": {self.words[:100]}" if self.words else ""
        return (
            f"{self.kind}, {self.moment}, {where}, parallelism"
            f" {self.life.parallelism}, {self.life.epoch_rows} rows an epoch{said}"
        )


@dataclass(frozen=True, kw_only=True)
class Summary:
    """What happened, and whether anybody could tell."""

    kills: tuple[Kill, ...]
    verdict: Verdict
    seconds: float
    slowest_orphan: float

    @property
    def is_exact(self) -> bool:
        return self.verdict.lost == self.verdict.duplicated == 0

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"is_exact": self.is_exact}

    def __str__(self) -> str:
        kinds = Counter(kill.kind for kill in self.kills)
        parts = ", ".join(f"{n} {kind}" for kind, n in sorted(kinds.items()))
        found = self.verdict
        return (
            f"{len(self.kills)} kills ({parts}), {found.epochs} epochs, {found.rows}"
            f" rows compared, lost {found.lost}, duplicated {found.duplicated}"
            f" ({self.seconds:.0f} s; the last process of a killed driver was gone"
            f" after {self.slowest_orphan:.1f} s)"
        )


@dataclass
class Killer:
    """Lets a victim live and die."""

    victim: Victim
    chance: random.Random
    tell: Callable[[str], None]
    kills: list[Kill] = field(default_factory=list)
    # What an epoch takes here and now, so that all of its moments have their share.
    epoch_seconds: float = 1.0
    slowest_orphan: float = 0.0

    def run(self, kills: int) -> Summary:
        """Kill so often; then let it come to its end, and compare."""
        began = time.monotonic()
        with contextlib.ExitStack() as before:
            while len(self.kills) < kills:
                with contextlib.ExitStack() as now:
                    life = self._life()
                    child = self._start(life, now)
                    before.close()
                    self._live_and_die(child, life, kills)
                    killed = time.monotonic()
                    now.callback(self._wait_for_orphans, child, killed)
                    before.push(now.pop_all())
        last = Life(parallelism=2, epoch_rows=self.victim.last_rows)
        self.tell("now to the end of the input")
        with alive(Child(self.victim.command(last))) as child:
            assert child.end(_PATIENCE_SECONDS) == 0, child.tail()
        self.tell("compare")
        return Summary(
            kills=tuple(self.kills),
            verdict=self.victim.verdict(),
            seconds=time.monotonic() - began,
            slowest_orphan=self.slowest_orphan,
        )

    def _life(self) -> Life:
        return Life(
            parallelism=self.chance.choice((1, 2, 2, 3)),
            epoch_rows=self.chance.choice(self.victim.epoch_rows),
        )

    def _start(self, life: Life, stack: contextlib.ExitStack) -> Child:
        return stack.enter_context(alive(Child(self.victim.command(life))))

    def _wait_for_orphans(self, child: Child, killed: float) -> None:
        child.wait_for_orphans(_PATIENCE_SECONDS)
        self.slowest_orphan = max(self.slowest_orphan, time.monotonic() - killed)

    def _live_and_die(self, child: Child, life: Life, kills: int) -> None:
        """Kill workers, then the driver or its virtual machine."""
        is_over = False
        while not is_over and len(self.kills) < kills:
            moment = self._wait_for_a_moment(child)
            child.look()
            kind = self._kill(child, self.chance.choice(_KINDS))
            is_over = kind != "worker"
            if kind == "jvm":
                assert child.end(_PATIENCE_SECONDS) != 0, child.tail()
            kill = Kill(
                kind=kind,
                moment=moment,
                epoch=self._newest(),
                life=life,
                words=child.lines[-1] if kind == "jvm" and child.lines else "",
            )
            self.kills.append(kill)
            self.tell(f"kill {len(self.kills)}/{kills}: {kill}")
        if not is_over:
            child.kill()

    def _kill(self, child: Child, kind: str) -> str:
        """Return who was killed: the driver if the one who was meant is not there."""
        jvm, workers = jvm_of(child.pid), workers_of(child.pid)
        if kind == "jvm" and jvm is not None:
            os.kill(jvm, signal.SIGKILL)
        elif kind == "worker" and workers:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.chance.choice(workers), signal.SIGKILL)
        else:
            kind = "driver"
            child.kill()
        return kind

    def _wait_for_a_moment(self, child: Child) -> str:
        """Wait for a start, an instant of an epoch, or one of its commits."""
        sort = self.chance.random()
        if sort < 0.15:
            delay = self.chance.uniform(0.3, _START_SECONDS)
            self._pause(child, delay)
            return f"{delay:.2f} s later"
        epochs = self.chance.randint(1, 3)
        self._wait_for_epochs(child, epochs)
        longest = _COMMIT_SECONDS if sort < 0.45 else 1.2 * self.epoch_seconds
        delay = self.chance.uniform(0, longest)
        self._pause(child, delay)
        return f"{delay:.3f} s after {epochs} epochs"

    def _wait_for_epochs(self, child: Child, count: int) -> None:
        """Wait until so many more are decided."""
        first = self._newest()
        start = -1 if first is None else first
        seen, seen_at = start, time.monotonic()
        deadline = seen_at + _PATIENCE_SECONDS
        while seen < start + count:
            _stay(child, deadline)
            newest = self._newest()
            if newest is not None and newest > seen:
                now = time.monotonic()
                if seen > start:
                    self.epoch_seconds = (now - seen_at) / (newest - seen)
                seen, seen_at = newest, now

    def _pause(self, child: Child, seconds: float) -> None:
        moment = time.monotonic() + seconds
        while time.monotonic() < moment:
            _stay(child, moment + 1)

    def _newest(self) -> int | None:
        """Return the newest decided epoch, as anybody can see it."""
        folder = self.victim.store / "regions/main/epochs"
        found = [path.stem for path in folder.glob("*.json")]
        return max((int(name) for name in found if name.isdigit()), default=None)


def _stay(child: Child, deadline: float) -> None:
    """Let a little time pass in which the driver must not end."""
    code = child.process.poll()
    if code is not None:
        why = "the input was over" if code == 0 else f"it ended with {code}"
        message = f"{why} before it was killed: {child.tail()}"
        raise AssertionError(message)
    assert time.monotonic() < deadline, f"no epoch in time: {child.tail()}"
    time.sleep(0.004)
