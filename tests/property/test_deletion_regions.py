"""No schedule loses what two regions, a channel and named cuts of them still need.

As in ``test_deletion``: sweeps, expiries, ways back, names and forks are processes of
their own, which do one access to storage at a time, and may be paused or killed between
two. Region *main* writes the channel that region *east* reads, slowly.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from datetime import timedelta
from functools import partial
from typing import Any

import msgspec
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from tests.property.actors import Actor, Memory
from tests.unit.snapshot.builders import manifest, write

import riverlock as rl
from riverlock.connectors import going_back
from riverlock.core.clock import SystemClock
from riverlock.core.errors import InvalidConfigError, SnapshotNotFoundError
from riverlock.snapshot import address, claims
from riverlock.snapshot.catalog import Catalog
from riverlock.snapshot.format import parents
from riverlock.snapshot.format.channels import channel_ends
from riverlock.snapshot.format.cuts.cut_records import Reset
from riverlock.snapshot.format.cuts.reset_log import ResetLog
from riverlock.snapshot.format.parents import holds
from riverlock.snapshot.format.records import (
    CHANNEL,
    FORMAT,
    REGIONS_FEATURE,
    Flow,
    InputRange,
    Manifest,
    Named,
    Run,
    SinkOutput,
    StateFile,
)
from riverlock.snapshot.format.references import references
from riverlock.snapshot.format.sealed import checksum, seal
from riverlock.snapshot.format.store_layout import FLOW
from riverlock.snapshot.in_flight import between
from riverlock.snapshot.owner import Life
from riverlock.snapshot.retention import inventory
from riverlock.snapshot.retention.policy import Retention, sweep
from riverlock.snapshot.timeline import spans
from riverlock.snapshot.verbs import fork as forking
from riverlock.snapshot.verbs import fork_parents

STORE = "memory://store"
REGIONS = ("east", "main")
_WAITS = (1, 6, 700, 7_200, 90_000)
_ROWS = b"rows"


class Regions(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.patch = pytest.MonkeyPatch()
        self.time, self.count = 1_767_225_600, 0
        self.is_changed = True
        self.places: dict[str, Memory] = {}
        self._patch()
        storage: Any = self.open(STORE)
        flow = Flow(
            format=FORMAT,
            name="shop",
            id="shop",
            key_groups=8,
            created_us=0,
            features=(REGIONS_FEATURE,),
        )
        storage.put(FLOW, seal(flow))
        self.store = Catalog(storage)
        self.template = write(storage, 1, {"a": 1})
        self.content = storage.get(self.template.path)
        storage.delete(self.template.path)
        self.runs: dict[str, Run] = {}
        self.actors: list[Actor] = []
        self.names: set[str] = set()
        self.forked: set[str] = set()
        for _ in range(3):
            self.main_goes_on()
        self.east_goes_on(1)

    @property
    def now_us(self) -> int:
        return self.time * 1_000_000

    def open(self, where: str) -> Memory:
        return self.places.setdefault(where, Memory(self, where))

    def note_decided(self, path: str) -> None:
        """Nothing to note: what counts is what is there."""

    def _patch(self) -> None:
        patch = self.patch.setattr
        for module in (address, forking, fork_parents, parents, rl.stores):
            patch(module, "open_storage", self.open)
        patch(inventory, "seconds", lambda: self.time)
        patch(SystemClock, "now_us", lambda _: self.now_us)
        # Whoever owns a region may be paused elsewhere: its heart does not beat.
        patch(claims, "_is_alive", lambda *_: False)
        patch(going_back, "_runs", lambda *_: False)
        patch(claims, "life_of", lambda *_: Life(is_alive=False))

    def teardown(self) -> None:
        for actor in self.actors:
            actor.kill()
        self.patch.undo()

    # The flow.

    def _begin(self, region: str) -> Catalog:
        """Complete what a restore left to do, as each start does; own the region."""
        for each in REGIONS:
            going_back.take_up(self.store.of(each), now_us=self.now_us)
        part, run = self.store.of(region), self.runs.get(region)
        if run is None or part.run(run.run + 1) is not None:
            self.runs[region] = claims.claim(part, now_us=self.now_us)
        return part

    def _state(self, part: Catalog, epoch: int) -> StateFile:
        self.count += 1
        path = part.paths.state_file("op", epoch, f"t-{self.count}")
        part.storage.put(path, self.content)
        return msgspec.structs.replace(
            self.template, path=path, first_epoch=epoch, last_epoch=epoch
        )

    def _next(self, part: Catalog, **changes: Any) -> Manifest:
        parent = part.newest()
        epoch = 0 if parent is None else parent.epoch + 1
        files = () if parent is None else parent.operators["op"].files[-2:]
        run = self.runs[part.region]
        last = ResetLog(part.storage).last()
        history = () if parent is None else parent.history
        if not history or history[-1][1] != run.token:
            history = (*history, (epoch, run.token))
        return msgspec.structs.replace(
            manifest(epoch, (*files, self._state(part, epoch))),
            region=part.region,
            parent=None if parent is None else parent.epoch,
            run=run.run,
            decided_us=self.now_us,
            history=history,
            reset=0 if last is None else last.number,
            **changes,
        )

    @rule()
    def main_goes_on(self) -> None:
        part = self._begin("main")
        newest = part.newest()
        epoch = 0 if newest is None else newest.epoch + 1
        self.count += 1
        path = part.paths.channel_file("ch", epoch, f"c-{self.count}")
        part.storage.put(path, _ROWS)
        token = {
            "path": path,
            "rows": 1,
            "bytes": len(_ROWS),
            "checksum": checksum(_ROWS),
        }
        output = SinkOutput(kind=CHANNEL, place="region east", tokens=(token,), rows=1)
        part.decide(self._next(part, outputs={"ch": output}))

    @rule(epochs=st.integers(0, 3))
    def east_goes_on(self, epochs: int) -> None:
        part = self._begin("east")
        newest, writer = part.newest(), self.store.of("main").resolve(None)
        first = 0 if newest is None else newest.inputs["ch"].end["epoch"]
        counted = [e for a, b in spans(writer) for e in range(max(a, first), b + 1)]
        end = ([first, *(e + 1 for e in counted)])[: epochs + 1][-1]
        read = InputRange(start=_at(first), end=_at(end), rows=end - first)
        part.decide(self._next(part, inputs={"ch": read}))

    # What acts on the store.

    def _start(self, what: str, work: Callable[[], object]) -> None:
        if len(self.actors) < 4:
            self.actors.append(Actor(what, work))

    @rule(region=st.sampled_from(REGIONS), epochs=st.integers(1, 3))
    def a_sweep_begins(self, region: str, epochs: int) -> None:
        keep = Retention(epochs=epochs, grace=timedelta(0))
        self._start(f"sweep {region}", lambda: sweep(self.store.of(region), keep))

    @rule(epochs=st.integers(1, 3))
    def an_expiry_begins(self, epochs: int) -> None:
        self._start(
            "expire",
            lambda: rl.stores.expire_all(STORE, epochs=epochs, grace="0 seconds"),
        )

    @rule()
    def a_cut_is_named(self) -> None:
        """The newest epochs fit together, since nobody reads what is not decided."""
        self.count += 1
        name = f"v{self.count}"
        at = {region: self.store.of(region).resolve(None) for region in REGIONS}
        ends = {writer: end for _, writer, _, end in channel_ends(at["east"])}
        if ends["main"] - 1 > at["main"].epoch:
            return  # a restore is under way

        def work() -> None:
            named = Named(
                name=name,
                regions={region: made.epoch for region, made in at.items()},
                created_us=self.now_us,
                protocol="unaligned",
                cut=self.count,
                in_flight=tuple(b.span for b in between(self.store, at.values())),
            )
            self.store.pin_all(named)
            self.names.add(name)

        self._start(f"name {name}", work)

    @precondition(lambda self: self.names)
    @rule(data=st.data())
    def a_name_is_taken_away(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.names)))
        self.names.discard(name)
        rl.stores.drop_savepoint(STORE, name)

    @precondition(lambda self: self.names)
    @rule(data=st.data())
    def all_go_back(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.names)))
        self._start(f"back to {name}", lambda: rl.stores.restore_all(f"{STORE}@{name}"))

    @rule(data=st.data(), region=st.sampled_from(REGIONS))
    def one_goes_back(self, data: st.DataObject, region: str) -> None:
        epoch = data.draw(st.sampled_from(self.store.of(region).epochs()))
        try:
            rl.stores.restore(f"{STORE}@{epoch}", region=region)
        except (InvalidConfigError, SnapshotNotFoundError):
            return

    @precondition(lambda self: self.names)
    @rule(data=st.data(), copy=st.booleans())
    def a_fork_begins(self, data: st.DataObject, *, copy: bool) -> None:
        self.count += 1
        name = data.draw(st.sampled_from(sorted(self.names)))
        new = f"memory://fork-{self.count}"
        self.forked.add(new)
        self._start(
            f"fork {name}",
            lambda: rl.stores.fork(f"{STORE}@{name}", new, copy=copy),
        )

    @precondition(lambda self: self.actors)
    @rule(data=st.data(), accesses=st.one_of(st.integers(1, 30), st.just(1000)))
    def one_moves(self, data: st.DataObject, accesses: int) -> None:
        actor = data.draw(st.sampled_from(self.actors))
        for _ in range(accesses):
            if actor.is_over:
                break
            actor.move(1)
            self.nothing_is_lost()
        self.actors = [a for a in self.actors if not a.is_over]

    @precondition(lambda self: self.actors)
    @rule(data=st.data())
    def one_is_killed(self, data: st.DataObject) -> None:
        actor = data.draw(st.sampled_from(self.actors))
        actor.kill()
        self.actors.remove(actor)

    @rule(seconds=st.sampled_from(_WAITS))
    def time_passes(self, seconds: int) -> None:
        self.time += seconds

    @rule(epochs=st.integers(1, 3))
    def much_happens_meanwhile(self, epochs: int) -> None:
        for _ in range(epochs):
            self.main_goes_on()
            self.east_goes_on(2)
        self.time += 7_200
        for region in REGIONS:
            sweep(self.store.of(region), Retention(epochs=1, grace=timedelta(0)))

    @rule(region=st.sampled_from(REGIONS))
    def forks_go_on(self, region: str) -> None:
        """State becomes the fork's own; what is in flight there stays its parent's."""
        for fork in self._forks():
            part = fork.of(region)
            parent = part.resolve(None)
            file = self._state(part, parent.epoch + 1)
            state = msgspec.structs.replace(parent.operators["op"], files=(file,))
            made = msgspec.structs.replace(
                parent,
                epoch=parent.epoch + 1,
                parent=parent.epoch,
                operators={"op": state},
                inputs={
                    uid: InputRange(start=read.end, end=read.end, rows=0)
                    for uid, read in parent.inputs.items()
                },
                outputs={
                    uid: msgspec.structs.replace(output, tokens=(), rows=0)
                    for uid, output in parent.outputs.items()
                },
            )
            assert part.decide(made)

    @rule()
    def forks_are_swept(self) -> None:
        keep = Retention(epochs=1, grace=timedelta(0))
        for fork in self._forks():
            for part in map(fork.of, fork.regions()):
                self._start(f"sweep of {fork.storage.uri}", partial(sweep, part, keep))

    def _forks(self) -> Iterator[Catalog]:
        for place in sorted(self.forked):
            if self.open(place).exists(FLOW):
                yield Catalog(self.open(place))

    # What must hold at any instant.

    @invariant()
    def nothing_is_lost(self) -> None:
        if not self.is_changed:
            return
        self.is_changed = False
        for store in (self.store, *self._forks()):
            for region in store.regions():
                part = store.of(region)
                for epoch in part.epochs():
                    self._check(store, part.manifest(epoch))
        for store in (self.store, *self._forks()):
            if not _still_back(store):
                self._check_between(store, store.resolve_all(None))
        for region, epoch in _still_back(self.store).items():
            assert epoch in self.store.of(region).epochs(), "about to go back there"
        for name in self.names:
            self._check_between(self.store, self.store.resolve_all(name))

    def _check(self, store: Catalog, made: Manifest) -> None:
        for path in references(made):
            assert holds(store.storage, path), f"{made.region} {made.epoch}: {path}"

    def _check_between(self, store: Catalog, at: tuple[Manifest, ...]) -> None:
        """Every epoch that the reader has still to pass is there, with its rows."""
        for flying in between(store, at):
            for epoch in range(flying.span.first, flying.span.end):
                path = store.of("main").paths.manifest(epoch)
                assert store.storage.exists(path), f"unread epoch {epoch}"
            for _, token in flying.files:
                assert holds(store.storage, token["path"]), token["path"]


def _still_back(store: Catalog) -> dict[str, int]:
    """Return the epochs that regions are about to go back to."""
    last: Reset | None = ResetLog(store.storage).last()
    return {
        region: epoch
        for region, epoch in ({} if last is None else last.regions).items()
        if last is not None and store.of(region).resolve(None).reset < last.number
    }


def _at(epoch: int) -> dict[str, Any]:
    return {"region": "main", "channel": "ch", "epoch": epoch}


Regions.TestCase.settings = settings(
    max_examples=int(os.environ.get("RIVERLOCK_EXAMPLES", "40")),
    stateful_step_count=40,
    deadline=None,
)
TestRegions = Regions.TestCase


# Schedules that chance meets seldom.


def _sweep(store: Catalog, *regions: str) -> None:
    for region in regions:
        sweep(store.of(region), Retention(epochs=1, grace=timedelta(0)))


def _with_a_cut() -> tuple[Regions, str]:
    """Return a world with a named cut that has rows in flight."""
    world = Regions()
    world.a_cut_is_named()
    world.actors.pop().move(1000)
    (name,) = world.names
    return world, name


def test_rows_in_flight_alone_hold_the_store_that_was_forked() -> None:
    world, name = _with_a_cut()
    try:
        rl.stores.fork(f"{STORE}@{name}", "memory://fork")
        world.forked.add("memory://fork")
        for region in REGIONS:
            world.forks_go_on(region)
        world.time += 90_000
        fork = Catalog(world.open("memory://fork"))
        _sweep(fork, *REGIONS)
        world.names.discard(name)
        rl.stores.drop_savepoint(STORE, name)
        for _ in range(3):
            world.much_happens_meanwhile(2)

        assert between(fork, fork.resolve_all(None))[0].span.rows
        assert len(rl.stores.forks(STORE)) == 1
        world.is_changed = True
        world.nothing_is_lost()
    finally:
        world.teardown()


def test_a_restore_that_was_decided_holds_what_it_goes_back_to() -> None:
    world, name = _with_a_cut()
    try:
        for _ in range(3):
            world.main_goes_on()
            world.east_goes_on(3)
        actor = Actor("back", lambda: rl.stores.restore_all(f"{STORE}@{name}"))
        while ResetLog(world.store.storage).last() is None:
            actor.move(1)
        actor.move(3)
        actor.kill()
        world.names.discard(name)
        rl.stores.drop_savepoint(STORE, name)
        world.time += 90_000
        _sweep(world.store, *REGIONS)

        world.is_changed = True
        world.nothing_is_lost()
        world.main_goes_on()
        world.east_goes_on(1)
    finally:
        world.teardown()
