"""Retention keeps the rows that a region or a snapshot still needs, and no others.

A writer, a reader that is behind by any number of epochs, names of both at once, and
rounds of deletion in either region, in any order.
"""

from __future__ import annotations

import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from tests.unit.snapshot.builders import catalog as new_catalog
from tests.unit.snapshot.builders import manifest

from riverlock.snapshot.catalog import Catalog
from riverlock.snapshot.format.records import (
    CHANNEL,
    InFlight,
    InputRange,
    Manifest,
    Named,
    SinkOutput,
)
from riverlock.snapshot.format.sealed import checksum
from riverlock.snapshot.retention.policy import Retention, sweep
from riverlock.storage.local import LocalStorage

KEEP = Retention(epochs=2, grace=timedelta(0))
ROWS = b"rows"


class Channels(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.writer = new_catalog(LocalStorage(Path(self.folder.name)))
        self.reader = Catalog(self.writer.storage, "reader")
        self.now = datetime.now(UTC) + timedelta(days=9)
        self.sent = 0
        self.names: dict[str, tuple[int, int]] = {}
        self.count = 0
        self.writer_decides()

    def teardown(self) -> None:
        for name in list(self.names):
            self.a_name_is_dropped(name)
        for _ in range(4):
            self.reader_decides(100)
            self.writer_decides()
        for region in (self.reader, self.writer) * 2:
            sweep(region, KEEP, now=self.now)
        # Once readers and snapshots have passed, all but the last epochs are gone.
        assert len(self.files()) <= 4
        self.folder.cleanup()

    def files(self) -> list[str]:
        listed = self.writer.storage.list(self.writer.paths.channels)
        return [entry.path for entry in listed]

    @property
    def position(self) -> int:
        newest = self.reader.newest()
        return 0 if newest is None else newest.inputs["in"].end["epoch"]

    @rule()
    def writer_decides(self) -> None:
        epoch, self.sent = self.sent, self.sent + 1
        path = self.writer.paths.channel_file("x", epoch, "a")
        self.writer.storage.put(path, ROWS)
        token = {"path": path, "rows": 1, "bytes": 4, "checksum": checksum(ROWS)}
        output = SinkOutput(
            kind=CHANNEL, place="region reader", tokens=(token,), rows=1
        )
        self._decide(self.writer, epoch, outputs={"x": output})

    @rule(most=st.integers(0, 5))
    def reader_decides(self, most: int) -> None:
        newest = self.reader.newest()
        start, end = self.position, min(self.position + most, self.sent)
        at = {"region": "main", "channel": "x"}
        span = InputRange(start={**at, "epoch": start}, end={**at, "epoch": end})
        epoch = 0 if newest is None else newest.epoch + 1
        self._decide(self.reader, epoch, inputs={"in": span})

    def _decide(self, catalog: Catalog, epoch: int, **what: Any) -> None:
        made: Manifest = msgspec.structs.replace(
            manifest(epoch),
            region=catalog.region,
            parent=epoch - 1 if epoch else None,
            operators={},
            **what,
        )
        assert catalog.decide(made)

    @precondition(lambda self: self.reader.newest() is not None)
    @rule()
    def a_cut_is_named(self) -> None:
        self.count += 1
        newest, name = self.reader.newest(), f"v{self.count}"
        assert newest is not None
        first, end = self.position, self.sent
        span = InFlight(
            channel="x", writer="main", reader="reader", first=first, end=end
        )
        regions = {"main": end - 1, "reader": newest.epoch}
        named = Named(name=name, regions=regions, created_us=0, in_flight=(span,))
        self.writer.pin_all(named)
        self.names[name] = (first, end)

    @precondition(lambda self: self.names)
    @rule(data=st.data())
    def some_name_is_dropped(self, data: st.DataObject) -> None:
        self.a_name_is_dropped(data.draw(st.sampled_from(sorted(self.names))))

    def a_name_is_dropped(self, name: str) -> None:
        del self.names[name]
        self.writer.unpin(name)

    @rule(of_writer=st.booleans())
    def a_round_of_deletion(self, *, of_writer: bool) -> None:
        sweep(self.writer if of_writer else self.reader, KEEP, now=self.now)

    @invariant()
    def what_is_needed_is_there(self) -> None:
        needed = set(range(self.position, self.sent))
        for first, end in self.names.values():
            needed |= set(range(first, end))
        for epoch in needed:
            for token in self.writer.manifest(epoch).outputs["x"].tokens:
                assert self.writer.storage.exists(token["path"]), epoch


Channels.TestCase.settings = settings(
    max_examples=25, stateful_step_count=25, deadline=None
)
TestChannels = Channels.TestCase
