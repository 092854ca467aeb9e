"""Every sink keeps the promises of the suite that is shipped."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

import riverlock as rl
from riverlock.sinks.base import Sink
from riverlock.testing import SinkConformance


class TestFiles(SinkConformance):
    def make_sink(self, folder: Path) -> Sink:
        return rl.sinks.files(str(folder / "out"), format="json")

    def read_rows(self, sink: Sink) -> Iterable[tuple[object, ...]]:
        assert isinstance(sink, rl.sinks.FileSink)
        for path in Path(sink.path).glob("epoch=*/*.json"):
            for line in path.read_text().splitlines():
                yield tuple(json.loads(line).values())

    def leftovers(self, sink: Sink) -> Iterable[str]:
        assert isinstance(sink, rl.sinks.FileSink)
        hidden = Path(sink.path, "_riverlock")
        for place in ("staged", "building"):
            yield from (str(p) for p in (hidden / place).rglob("*") if p.is_file())
