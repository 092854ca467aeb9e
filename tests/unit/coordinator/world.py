"""A small world to run coordinators in: input, tasks, store, sinks, and an oracle.

Everything is exact and checked at the moment it happens: the oracle looks at each put
and each commit, not only at the end.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from riverlock.coordinator import (
    FIRST_EPOCH,
    FixedDelay,
    OperatorPlan,
    OperatorVote,
    PlannedInputs,
    RegionPlan,
    RunStage,
    Vote,
)
from riverlock.snapshot.format.records import InputRange, Manifest, StateFile

if TYPE_CHECKING:
    import random
    from collections.abc import Iterable, Mapping

__all__ = ["GROUPS", "SINKS", "Sink", "Store", "ViolationError", "World", "check_sinks"]

GROUPS = 4
SOURCES = ("x", "y")
SINKS = ("direct", "routed")

Row = tuple[str, int]


class ViolationError(AssertionError):
    """A promise of the protocol was broken."""


def expect(holds: object, what: str) -> None:
    if not holds:
        raise ViolationError(what)


def rows_between(ranges: Mapping[str, InputRange]) -> list[Row]:
    return [(s, i) for s, r in ranges.items() for i in range(r.start, r.end)]


def rows_until(manifest: Manifest) -> list[Row]:
    return [(s, i) for s, r in manifest.inputs.items() for i in range(r.end)]


def group_of(row: Row) -> int:
    return (row[1] * 7 + len(row[0])) % GROUPS


class Store:
    """Manifests by epoch, with a conditional put."""

    def __init__(self) -> None:
        self.manifests: dict[int, Manifest] = {}
        self.claims = 0

    def claim(self) -> int:
        self.claims += 1
        return self.claims

    def put(self, manifest: Manifest) -> bool:
        """Put if absent; tell whether it was."""
        if manifest.epoch in self.manifests:
            return False
        self.manifests[manifest.epoch] = manifest
        return True

    def newest(self) -> Manifest | None:
        return self.manifests[max(self.manifests)] if self.manifests else None


@dataclass
class Sink:
    """Keeps each epoch once and refuses runs older than the newest it has met."""

    commits: dict[int, tuple[int, tuple[Row, ...]]] = field(default_factory=dict)
    run: int = 0

    def commit(self, epoch: int, run: int, rows: tuple[Row, ...]) -> bool:
        """Commit once; tell whether the run is still welcome."""
        if run < self.run:
            return False
        self.run = run
        self.commits.setdefault(epoch, (run, rows))
        return True


@dataclass
class World:
    """What survives every crash."""

    random: random.Random
    store: Store = field(default_factory=Store)
    sinks: dict[str, Sink] = field(default_factory=lambda: {s: Sink() for s in SINKS})
    available: dict[str, int] = field(default_factory=lambda: dict.fromkeys(SOURCES, 0))
    files: dict[str, tuple[Row, ...]] = field(default_factory=dict)
    attempts: int = 0

    def plan(self) -> RegionPlan:
        """A new run, at a parallelism of its own."""
        return RegionPlan(
            store="world",
            flow="f",
            region="main",
            run=self.store.claim(),
            key_groups=GROUPS,
            parallelism=self.random.choice((1, 2, 3)),
            code="c",
            stages=("count", "route"),
            restart=FixedDelay(delay_us=1, attempts=3),
            operators={"count": OperatorPlan(stage="count", keys="k int")},
            sinks=dict.fromkeys(SINKS, "fake"),
        )

    def choose(self, parent: Manifest | None) -> dict[str, InputRange]:
        """Ranges of the next epoch; sources with nothing to read are left out."""
        chosen: dict[str, InputRange] = {}
        for source, available in self.available.items():
            known = parent is not None and source in parent.inputs
            start = parent.inputs[source].end if parent and known else 0
            end = min(available, start + self.random.randint(0, 4))
            if end > start:
                chosen[source] = InputRange(start=start, end=end)
        return chosen

    def write(self, rows: Iterable[Row]) -> str:
        """A new file under a name never used before."""
        self.attempts += 1
        path = f"file-{self.attempts}"
        self.files[path] = tuple(rows)
        return path

    def run_stage(self, order: RunStage, plan: RegionPlan) -> tuple[Vote, ...]:
        """Votes of all tasks and of some rivals, in any order."""
        if order.stage == "route":
            tokens = [t for v in order.earlier["count"] for t in v.staged["rows"]]
            rows = [row for t in tokens for row in self.files[t]]
            votes = [
                self._route(p, rows[p::2]) for p in range(2) for _ in self._tries()
            ]
        else:
            votes = [
                self._count(order.epoch, p, order.planned, plan)
                for p in range(plan.parallelism)
                for _ in self._tries()
            ]
        self.random.shuffle(votes)
        return tuple(votes)

    def _tries(self) -> range:
        return range(2 if self.random.random() < 0.1 else 1)

    def _route(self, partition: int, rows: list[Row]) -> Vote:
        path = self.write(rows)
        return Vote(
            partition=partition,
            attempt=path,
            outputs={"routed": (path,)},
            rows=len(rows),
        )

    def _count(
        self, epoch: int, partition: int, planned: PlannedInputs, plan: RegionPlan
    ) -> Vote:
        first = partition * GROUPS // plan.parallelism
        end = (partition + 1) * GROUPS // plan.parallelism
        rows = [r for r in rows_between(planned.inputs) if first <= group_of(r) < end]
        path = self.write(rows)
        file = state_file(path, (epoch, epoch), (first, end), len(rows))
        changed = OperatorVote(files=(file,) if rows else (), entries_delta=len(rows))
        return Vote(
            partition=partition,
            attempt=path,
            operators={"count": changed},
            outputs={"direct": (path,)},
            staged={"rows": (path,)},
            rows=len(rows),
        )

    def compact(self, manifest: Manifest) -> tuple[tuple[str, ...], StateFile] | None:
        """Merge the oldest files of a manifest, or None if there are too few."""
        files = manifest.operators["count"].files
        last = self.random.choice(files).last_epoch if files else FIRST_EPOCH
        old = [f for f in files if f.last_epoch <= last]
        if len(old) < 2:
            return None
        path = self.write(row for f in old for row in self.files[f.path])
        merged = state_file(
            path,
            (old[0].first_epoch, last),
            (0, GROUPS),
            len(self.files[path]),
        )
        return tuple(f.path for f in old), merged

    # What the oracle sees.

    def put(self, manifest: Manifest) -> bool:
        """Put a manifest and check everything that its existence promises."""
        before = self.store.newest()
        known = manifest.epoch in self.store.manifests
        created = self.store.put(manifest)
        if not created:
            return False
        epoch = manifest.epoch
        expect(not known, f"epoch {epoch} was decided twice")
        expect(
            epoch == (FIRST_EPOCH if before is None else before.epoch + 1),
            f"epoch {epoch} leaves a gap",
        )
        expect(
            before is None or before.run <= manifest.run,
            f"stale run {manifest.run} decided epoch {epoch}",
        )
        for name, sink in self.sinks.items():
            expect(
                before is None or before.epoch in sink.commits,
                f"epoch {epoch} was decided before {name!r} had its parent",
            )
        self.check_state(manifest)
        return True

    def check_state(self, manifest: Manifest) -> None:
        """Check that state holds each row up to where the epoch has read, once."""
        state = manifest.operators["count"]
        found = sorted(row for f in state.files for row in self.files[f.path])
        wanted = sorted(rows_until(manifest))
        expect(found == wanted, f"epoch {manifest.epoch} holds {found}, not {wanted}")
        expect(
            state.entries == len(wanted),
            f"epoch {manifest.epoch} counts {state.entries} entries of {len(wanted)}",
        )

    def commit(self, name: str, epoch: int, run: int, tokens: tuple[Any, ...]) -> bool:
        """Commit to a sink and check that it only ever shows decided epochs."""
        sink = self.sinks[name]
        rows = tuple(row for t in tokens for row in self.files[t])
        known = epoch in sink.commits
        welcome = sink.commit(epoch, run, rows)
        if not welcome or known:
            return welcome
        manifest = self.store.manifests.get(epoch)
        expect(manifest, f"{name!r} committed epoch {epoch} before its decision")
        assert manifest is not None
        expect(
            epoch == FIRST_EPOCH or epoch - 1 in sink.commits,
            f"{name!r} skipped the epoch before {epoch}",
        )
        wanted = sorted(rows_between(manifest.inputs))
        expect(
            sorted(rows) == wanted, f"{name!r}, epoch {epoch}: {sorted(rows)} {wanted}"
        )
        return welcome

    def is_done(self) -> bool:
        """All input is in the newest manifest and in every sink."""
        newest = self.store.newest()
        if newest is None:
            return not any(self.available.values())
        ends = {s: r.end for s, r in newest.inputs.items()}
        read = all(ends.get(s, 0) == n for s, n in self.available.items())
        return read and all(newest.epoch in s.commits for s in self.sinks.values())


def check_sinks(world: World) -> None:
    """Check at the end that each sink holds each row once, in whole epochs."""
    newest = world.store.newest()
    wanted = [] if newest is None else sorted(rows_until(newest))
    epochs = sorted(world.store.manifests)
    expect(epochs == list(range(len(epochs))), f"epochs are not contiguous: {epochs}")
    for name, sink in world.sinks.items():
        found = sorted(row for _, rows in sink.commits.values() for row in rows)
        expect(found == wanted, f"{name!r} holds {found}, not {wanted}")
        runs = [run for _, (run, _) in sorted(sink.commits.items())]
        expect(runs == sorted(runs), f"{name!r} was written by runs {runs}")


def state_file(
    path: str, epochs: tuple[int, int], groups: tuple[int, int], rows: int
) -> StateFile:
    return StateFile(
        path=path,
        first_epoch=epochs[0],
        last_epoch=epochs[1],
        first_group=groups[0],
        end_group=groups[1],
        rows=rows,
        bytes=rows,
        checksum=path,
    )
