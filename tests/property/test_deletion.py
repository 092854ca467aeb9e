"""No schedule of what acts on a store loses a file that something reaches.

Drivers, rounds of deletion, ways back, forks, names and repairs are processes of their
own here: each does one access to storage at a time, when it is told, and may be paused
for any time or killed between two of them. Time is a number that the machine turns on.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from tests.property.actors import Actor, Memory
from tests.unit.snapshot.builders import catalog as new_catalog
from tests.unit.snapshot.builders import manifest, write

import riverlock as rl
from riverlock.core.clock import SystemClock
from riverlock.snapshot import address, claims, file_lists
from riverlock.snapshot.catalog import Catalog
from riverlock.snapshot.file_lists import Remembered, listed, put_lists
from riverlock.snapshot.format import parents
from riverlock.snapshot.format.merged_files import fits, note_merged
from riverlock.snapshot.format.parents import holds
from riverlock.snapshot.format.records import (
    InputRange,
    Manifest,
    Merged,
    Run,
    SinkOutput,
    StateFile,
)
from riverlock.snapshot.format.references import references
from riverlock.snapshot.format.sealed import checksum
from riverlock.snapshot.format.store_layout import FLOW
from riverlock.snapshot.retention import inventory
from riverlock.snapshot.retention.policy import Retention, sweep
from riverlock.snapshot.verbs import fork as forking
from riverlock.snapshot.verbs.expire import Expiry, Limits, expire, plan_expiry

_WAITS = (1, 6, 700, 7_200, 90_000)


class Stores(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.patch = pytest.MonkeyPatch()
        self.time = 1_767_225_600
        self.is_changed = True
        self.places: dict[str, Memory] = {}
        self._patch()
        storage: Any = self.open("memory://store")
        self.store = new_catalog(storage)
        self.template = write(storage, 1, {"a": 1})
        self.content = storage.get(self.template.path)
        storage.delete(self.template.path)
        self.count = 0
        self.under_way: Manifest | None = None
        self.merged: Merged | None = None
        self.decided: Counter[str] = Counter()
        self.run = claims.claim(self.store, now_us=self.now_us)
        self.actors: list[Actor] = []
        self.plans: list[Expiry] = []
        self.names: set[str] = set()
        self.backup: tuple[Any, ...] | None = None
        self.forked: set[str] = set()
        for _ in range(3):
            self.begin_epoch(merged=False)
            self.decide_epoch()

    @property
    def now_us(self) -> int:
        return self.time * 1_000_000

    def open(self, where: str) -> Memory:
        return self.places.setdefault(where, Memory(self, where))

    def _patch(self) -> None:
        patch = self.patch.setattr
        for module in (address, forking, parents, rl.stores):
            patch(module, "open_storage", self.open)
        patch(inventory, "seconds", lambda: self.time)
        patch(SystemClock, "now_us", lambda _: self.now_us)
        # Whoever owns the region may be paused elsewhere: its heart does not beat.
        patch(claims, "_is_alive", lambda *_: False)

    def teardown(self) -> None:
        for actor in self.actors:
            actor.kill()
        self.patch.undo()

    def note_decided(self, path: str) -> None:
        self.decided[path] += 1

    # The flow.

    def _file(self, first: int, last: int, stem: str) -> StateFile:
        self.count += 1
        path = self.store.paths.state_file("op", last, f"{stem}-{self.count}")
        self.store.storage.put(path, self.content)
        return msgspec.structs.replace(
            self.template, path=path, first_epoch=first, last_epoch=last
        )

    def begin_epoch(self, *, merged: bool) -> None:
        """Write what an epoch will refer to; who was fenced claims anew."""
        if self.store.run(self.run.run + 1) is not None:
            self.run = claims.claim(self.store, now_us=self.now_us)
        parent = self.store.newest()
        self.under_way = self._epoch(parent, self.run, merged=merged)

    def _epoch(
        self, parent: Manifest | None, run: Run, *, merged: bool = False
    ) -> Manifest:
        epoch = 0 if parent is None else parent.epoch + 1
        files = () if parent is None else parent.operators["op"].files
        if merged and self.merged is not None and parent is not None:
            files = self.merged.by if fits(self.merged, parent) else files
            self.merged = None
        files = (*files[-3:], self._file(epoch, epoch, "t"))
        self.count += 1
        listed = f"{self.store.paths.sources}in/{epoch:012d}-{self.count}.json"
        self.store.storage.put(listed, b"[]")
        staged = f"{self.store.paths.staged}{epoch:012d}/{self.count}.parquet"
        self.store.storage.put(staged, b"rows")
        token = {"path": staged, "checksum": checksum(b"rows"), "rows": 1, "bytes": 4}
        start = None if parent is None else parent.inputs["in"].end
        history = () if parent is None else parent.history
        if not history or history[-1][1] != run.token:
            history = (*history, (epoch, run.token))
        return msgspec.structs.replace(
            manifest(epoch, files),
            parent=None if parent is None else parent.epoch,
            run=run.run,
            decided_us=self.now_us,
            history=history,
            inputs={"in": InputRange(start=start, end={"base": listed}, rows=1)},
            outputs={"db": SinkOutput(kind="sql", tokens=(token,), rows=1)},
        )

    @rule()
    def files_are_merged(self) -> None:
        """An epoch that begins later refers to what waits, if at all."""
        state = self.store.resolve(None).operators["op"]
        first, last = state.files[0].first_epoch, state.files[-1].last_epoch
        made = Merged(
            operator="op",
            replaced=tuple(f.path for f in state.files),
            by=(self._file(first, last, "c"),),
        )
        if note_merged(self.store, made) is not None:
            self.merged = made

    def decide_epoch(self) -> None:
        made, self.under_way = self.under_way, None
        assert made is not None
        if self.store.run(made.run + 1) is None:
            self._decide(self.store, made)

    def _decide(self, store: Catalog, made: Manifest) -> bool:
        before = None if made.parent is None else store.manifest(made.parent)
        self.count += 1
        made, lists = listed(made, before, attempt=f"{self.count}")
        put_lists(store, lists)
        return store.decide(made)

    @rule(epochs=st.integers(1, 3), ends=st.booleans())
    def a_driver_begins(self, epochs: int, *, ends: bool) -> None:
        """Another driver takes over; it may sleep anywhere, and wake much later."""

        def work() -> None:
            run = claims.claim(self.store, now_us=self.now_us)
            parent = self.store.newest()
            for _ in range(epochs):
                if parent is not None and parent.run > run.run:
                    return
                made = self._epoch(parent, run)
                if self.store.run(run.run + 1) is not None:
                    return
                if not self._decide(self.store, made):
                    return
                parent = made
            if ends:
                claims.release(self.store, run)

        self._start("driver", work)

    @rule()
    def the_flow_ends(self) -> None:
        claims.release(self.store, self.run)
        self.run = claims.claim(self.store, now_us=self.now_us)
        self.under_way = None

    @rule(merged=st.booleans())
    def an_epoch_begins(self, *, merged: bool) -> None:
        self.begin_epoch(merged=merged)

    @precondition(lambda self: self.under_way is not None)
    @rule()
    def an_epoch_is_decided(self) -> None:
        self.decide_epoch()

    @rule(merged=st.booleans())
    def an_epoch(self, *, merged: bool) -> None:
        self.begin_epoch(merged=merged)
        self.decide_epoch()

    # What acts on the store.

    def _start(self, what: str, work: Callable[[], object]) -> None:
        if len(self.actors) < 4:
            self.actors.append(Actor(what, work))

    @rule(epochs=st.integers(1, 3), minutes=st.sampled_from([0, 10]))
    def a_sweep_begins(self, epochs: int, minutes: int) -> None:
        keep = Retention(epochs=epochs, grace=timedelta(minutes=minutes))
        self._start("sweep", lambda: sweep(self.store, keep))

    @rule(epochs=st.integers(1, 3))
    def an_expiry_is_planned(self, epochs: int) -> None:
        limits = Limits(epochs=epochs, grace=timedelta(0))
        plan = plan_expiry(self.store, limits, now_us=self.now_us)
        self.plans = [*self.plans[-1:], plan]

    @precondition(lambda self: self.plans)
    @rule(data=st.data())
    def an_expiry_begins(self, data: st.DataObject) -> None:
        plan = data.draw(st.sampled_from(self.plans))
        self._start("expire", lambda: expire(self.store, plan))

    def _some_epoch(self, data: st.DataObject) -> str:
        return f"memory://store@{data.draw(st.sampled_from(self.store.epochs()))}"

    @rule(data=st.data())
    def a_restore_begins(self, data: st.DataObject) -> None:
        address = self._some_epoch(data)
        self._start(f"restore {address}", lambda: rl.stores.restore(address))

    @rule(data=st.data(), copy=st.booleans())
    def a_fork_begins(self, data: st.DataObject, *, copy: bool) -> None:
        self.count += 1
        address, new = self._some_epoch(data), f"memory://fork-{self.count}"
        self.forked.add(new)
        self._start(f"fork {address}", lambda: rl.stores.fork(address, new, copy=copy))

    @rule(data=st.data())
    def a_name_is_given(self, data: st.DataObject) -> None:
        self.count += 1
        address, name = self._some_epoch(data), f"v{self.count}"

        def work() -> None:
            rl.stores.savepoint(address, name)
            self.names.add(name)

        self._start(f"name {address}", work)

    @precondition(lambda self: self.names)
    @rule(data=st.data())
    def a_name_is_taken_away(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.names)))
        self.names.discard(name)
        rl.stores.drop_savepoint("memory://store", name)

    @rule()
    def a_repair_begins(self) -> None:
        self.store.storage.put("notes.txt", b"of somebody")
        self._start("repair", lambda: rl.stores.repair("memory://store"))

    @precondition(lambda self: self.actors)
    @rule(data=st.data(), accesses=st.one_of(st.integers(1, 30), st.just(1000)))
    def one_goes_on(self, data: st.DataObject, accesses: int) -> None:
        actor = data.draw(st.sampled_from(self.actors))
        for _ in range(accesses):
            if actor.is_over:
                break
            actor.move(1)
            self.nothing_is_lost()
        self.actors = [a for a in self.actors if not a.is_over]

    @precondition(lambda self: self.actors)
    @rule(data=st.data())
    def one_falls_asleep_before_it_decides(self, data: st.DataObject) -> None:
        actor = data.draw(st.sampled_from(self.actors))
        for _ in range(200):
            if actor.is_over or actor.decides:
                break
            actor.move(1)
            self.nothing_is_lost()
        self.actors = [a for a in self.actors if not a.is_over]

    @rule(epochs=st.integers(1, 4), keep=st.integers(1, 2))
    def much_happens_meanwhile(self, epochs: int, keep: int) -> None:
        for _ in range(epochs):
            self.begin_epoch(merged=False)
            self.decide_epoch()
        self.time += 7_200
        sweep(self.store, Retention(epochs=keep, grace=timedelta(0)))

    @precondition(lambda self: self.actors)
    @rule(data=st.data())
    def one_is_killed(self, data: st.DataObject) -> None:
        actor = data.draw(st.sampled_from(self.actors))
        actor.kill()
        self.actors.remove(actor)

    @rule(seconds=st.sampled_from(_WAITS))
    def time_passes(self, seconds: int) -> None:
        self.time += seconds

    # Forks live on.

    def _forks(self) -> Iterator[Catalog]:
        for place in sorted(self.forked):
            if self.open(place).exists(FLOW):
                yield Catalog(self.open(place))

    @rule(merged=st.booleans())
    def forks_go_on(self, *, merged: bool) -> None:
        for fork in self._forks():
            parent = fork.resolve(None)
            self.count += 1
            path = fork.paths.state_file("op", parent.epoch + 1, f"f-{self.count}")
            fork.storage.put(path, self.content)
            file = msgspec.structs.replace(self.template, path=path)
            files = () if merged else parent.operators["op"].files
            state = msgspec.structs.replace(
                parent.operators["op"], files=(*files, file)
            )
            made = msgspec.structs.replace(
                parent,
                epoch=parent.epoch + 1,
                parent=parent.epoch,
                operators={"op": state},
            )
            assert self._decide(fork, made)
            self._start(
                f"sweep of {fork.storage.uri}",
                lambda fork=fork: sweep(  # type: ignore[misc]
                    fork, Retention(epochs=1, grace=timedelta(0))
                ),
            )

    # Backups: nobody acts on a store while files are copied, but plans may wait.

    @rule()
    def a_backup_is_made(self) -> None:
        files = dict(self.open("memory://store").files)
        self.backup = (files, set(self.names), set(self.forked), self.decided.copy())

    @precondition(lambda self: self.backup is not None)
    @rule()
    def a_backup_is_put_back(self) -> None:
        assert self.backup is not None
        for actor in self.actors:
            actor.kill()
        self.actors = []
        files, names, forked, decided = self.backup
        self.open("memory://store").files = dict(files)
        self.names, self.decided = set(names), decided.copy()
        self.run = claims.claim(self.store, now_us=self.now_us)
        # The store that was put back knows nothing of forks that were made since.
        self.forked &= forked
        self.under_way = self.merged = None

    # What must hold at any instant.

    @invariant()
    def nothing_is_lost(self) -> None:
        if not self.is_changed:
            return
        self.is_changed = False
        epochs = self.store.epochs()
        assert epochs
        again = [path for path, times in self.decided.items() if times > 1]
        assert not again, f"decided twice: {again}"
        for epoch in epochs:
            self._check(self.store, self.store.manifest(epoch))
        self._check_staged(self.store.manifest(epochs[-1]))
        for name in self.names:
            assert self.store.resolve(name).epoch in epochs
        for fork in self._forks():
            for epoch in fork.epochs():
                self._check(fork, fork.manifest(epoch))

    def _check(self, store: Catalog, made: Manifest) -> None:
        for path in references(made):
            assert holds(store.storage, path), f"epoch {made.epoch} lacks {path}"

    def _check_staged(self, newest: Manifest) -> None:
        for output in newest.outputs.values():
            for token in output.tokens:
                assert self.store.storage.exists(token["path"]), token["path"]


Stores.TestCase.settings = settings(
    max_examples=int(os.environ.get("RIVERLOCK_EXAMPLES", "60")),
    stateful_step_count=40,
    deadline=None,
)
TestStores = Stores.TestCase


class ListedStores(Stores):
    """The same, where every state file stands in a list beside its manifest."""

    def _patch(self) -> None:
        super()._patch()
        self.patch.setattr(file_lists, "MOST", 0)
        # Processes of their own have not read each other's lists.
        self.patch.setattr(file_lists, "_remembered", Remembered(0))


ListedStores.TestCase.settings = settings(
    Stores.TestCase.settings, max_examples=Stores.TestCase.settings.max_examples // 3
)
TestListedStores = ListedStores.TestCase
