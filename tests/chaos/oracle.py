"""What a perfect run would have left behind, computed in plain Python.

Nothing here asks Riverlock what the result is: rows follow from their number, sinks
are read with ``json`` and ``pyarrow``, and every epoch is compared on its own with the
cut of the input that its manifest claims (O1, O2, O4). Only the state is read through
``riverlock.snapshot``, as a user would read it (O3).
"""

from __future__ import annotations

import json
import os
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from tests.chaos.worker_flow import (
    ACCOUNTS,
    BUCKET_US,
    PANE_US,
    SEED,
    START_US,
    STEP_US,
    Options,
)

from riverlock.connectors.base.committer import Owner
from riverlock.connectors.builtin_committers import FileCommitter
from riverlock.core.times import END_US
from riverlock.sinks import files
from riverlock.snapshot.catalog import Catalog
from riverlock.snapshot.past import Past
from riverlock.snapshot.retention.policy import Retention, sweep
from riverlock.snapshot.state_reader import read_entries, read_variable
from riverlock.snapshot.verbs.verify import verify
from riverlock.storage.local import LocalStorage

_FORMATS = {
    "events": "json",
    "windows": "parquet",
    "odd": "json",
    "ledger": "parquet",
    "slides": "parquet",
    "joins": "parquet",
}
SINKS = tuple(name for name in _FORMATS if name != "joins")


def sinks_of(options: Options) -> tuple[str, ...]:
    """Return the sinks of a run."""
    return (*SINKS, "joins") if options.join else SINKS


@dataclass(frozen=True)
class Row:
    """One row of the input."""

    key: str
    seq: int
    value: int
    at_us: int
    source: int
    target: int


def row(number: int, options: Options) -> Row:
    """Return the row of a number; the same arithmetic as the generator's, by hand."""
    if options.hot and number % 10:
        key, seq = 0, number - (number + 9) // 10
    elif options.hot:
        rest = options.keys - 1
        key, seq = 1 + (number // 10) % rest, (number // 10) // rest
    else:
        key, seq = number % options.keys, number // options.keys
    return Row(
        key=f"k{key}",
        seq=seq,
        value=(number * 7919 + SEED) % 1009,
        at_us=START_US + number * STEP_US,
        source=number % ACCOUNTS,
        target=(number * 31 + 7) % ACCOUNTS,
    )


@dataclass
class Reference:
    """A fold over the input, epoch by epoch."""

    options: Options
    expected: Counter[str] = field(default_factory=Counter)
    totals: Counter[str] = field(default_factory=Counter)
    recent: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    buckets: dict[tuple[str, int], int] = field(default_factory=dict)
    balances: Counter[int] = field(default_factory=Counter)
    postings: Counter[int] = field(default_factory=Counter)
    panes: Counter[tuple[str, int]] = field(default_factory=Counter)
    # Rows that wait for the next one of their key, and until when.
    alone: dict[tuple[str, int], int] = field(default_factory=dict)
    watermark_us: int | None = None
    used_us: int | None = None

    def epoch(self, number: int, start: int, end: int) -> dict[str, Counter[Any]]:
        """Return the rows that each sink gets in an epoch."""
        found: dict[str, Counter[Any]] = {n: Counter() for n in sinks_of(self.options)}
        before = self.used_us
        if start >= self.options.rows:
            self.watermark_us = END_US
        self.used_us = self.watermark_us
        self._fire(found["windows"])
        self._slide(before, found["slides"])
        if self.options.join:
            self._join(start, end, found["joins"])
        touched = set()
        for each in (row(n, self.options) for n in range(start, end)):
            key = each.key
            assert each.seq == self.expected[key]
            self.expected[key] += 1
            self.totals[key] += each.value
            self.recent[key] = [*self.recent[key], each.value][-5:]
            bucket = each.at_us // BUCKET_US
            self.buckets.setdefault((key, bucket), 0)
            self.buckets[key, bucket] += each.value
            found["events"][key, each.seq, self.totals[key], number] += 1
            if each.value % 50 == 0:
                found["odd"][key, each.seq, each.value] += 1
            self.balances[each.source] -= each.value
            self.balances[each.target] += each.value
            self.postings[each.source] += 1
            self.postings[each.target] += 1
            touched |= {each.source, each.target}
            pane = each.at_us // PANE_US * PANE_US + PANE_US
            self.panes[key, pane] += each.value
            # Another one of this instant may come.
            self.watermark_us = each.at_us - 1
        for account in touched:
            cut = account, self.balances[account], self.postings[account]
            found["ledger"][cut] += 1
        return found

    def _fire(self, windows: Counter[Any]) -> None:
        """Timers fire by the watermark of the epochs before."""
        mark = self.watermark_us
        due = [b for b in self.buckets if mark is not None and self._end(b) <= mark]
        for key, bucket in due:
            windows[key, bucket, self.buckets.pop((key, bucket))] += 1

    def _join(self, start: int, end: int, joins: Counter[Any]) -> None:
        """Rows without partner are given when the next one would have come."""
        mark = self.used_us
        late = [w for w, us in self.alone.items() if mark is not None and us <= mark]
        for key, seq in late:
            del self.alone[key, seq]
            joins[key, seq, None] += 1
        for each in (row(n, self.options) for n in range(start, end)):
            before = (each.key, each.seq - 1)
            if each.value % 2 == 0 and self.alone.pop(before, None) is not None:
                joins[*before, each.seq] += 1
            wait = self.options.keys * STEP_US
            self.alone[each.key, each.seq] = each.at_us + wait

    def _slide(self, before: int | None, slides: Counter[Any]) -> None:
        """Windows of two panes are given once their last instant is over."""
        if self.used_us is None:
            return
        mark = self.used_us + 1
        windows = {(k, e) for k, p in self.panes for e in (p, p + PANE_US)}
        for key, end in windows:
            if (before is None or before + 1 < end) and end <= mark:
                total = self.panes[key, end] + self.panes[key, end - PANE_US]
                times = [_instant(us) for us in (end - 2 * PANE_US, end)]
                slides[key, *times, total] += 1
        kept = {w: n for w, n in self.panes.items() if w[1] + PANE_US > mark}
        self.panes = Counter(kept)

    @staticmethod
    def _end(bucket: tuple[str, int]) -> int:
        return (bucket[1] + 1) * BUCKET_US


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """What the comparison found; whole if it returned at all."""

    epochs: int
    rows: int
    lost: int
    duplicated: int
    details: tuple[str, ...] = ()


def sink_rows(out: Path, name: str, epoch: int) -> Counter[Any]:
    """Return the rows of an epoch as any reader of the directory sees them."""
    rows: Counter[Any] = Counter()
    for path in sorted((out / name / f"epoch={epoch:012d}").glob("*")):
        if _FORMATS[name] == "json":
            found = [json.loads(line) for line in path.read_text().splitlines()]
        else:
            found = pq.read_table(path, partitioning=None).to_pylist()
        rows.update(tuple(each.values()) for each in found)
    return rows


def sink_epochs(out: Path, name: str) -> list[int]:
    """Return the visible epochs of a sink."""
    return sorted(int(p.name[6:]) for p in (out / name).glob("epoch=*"))


def check(
    options: Options, *, complete: bool = True, keep: int | None = None
) -> Verdict:
    """Compare everything; ``complete``: all input must have been read.

    Args:
        options: Those of the child.
        complete: Whether the flow has come to the end of its input.
        keep: How many epochs the sweep at the end retains; None for all.
    """
    out = Path(options.out)
    catalog = Catalog(LocalStorage(Path(options.store)))
    manifests = {e: catalog.manifest(e) for e in catalog.epochs()}
    newest = max(manifests)
    ranges = _ranges(options, manifests)
    _check_runs(manifests)
    reference = Reference(options)
    duplicated = lost = rows = 0
    for epoch, (start, end) in ranges.items():
        for name, expected in reference.epoch(epoch, start, end).items():
            found = sink_rows(out, name, epoch)
            lost += (expected - found).total()
            duplicated += (found - expected).total()
            rows += found.total()
            assert found == expected, f"sink {name}, epoch {epoch}: {found - expected}"
            _check_files(out, name, epoch, manifests.get(epoch))
        assert sum(reference.balances.values()) == 0
    if complete:
        assert max(end for _, end in ranges.values()) == options.rows
    for name in sinks_of(options):
        assert set(sink_epochs(out, name)) <= set(ranges), (
            "an undecided epoch is visible"
        )
    check_state(catalog, newest, reference)
    check_whole(catalog)
    check_nothing_left(options, keep=keep or len(manifests))
    check_state(catalog, newest, reference)
    check_whole(catalog)
    return Verdict(epochs=len(ranges), rows=rows, lost=lost, duplicated=duplicated)


def _ranges(options: Options, manifests: dict[int, Any]) -> dict[int, tuple[int, int]]:
    """Return what each epoch read, as the sink's rows say; retention forgets manifests.

    Neither epochs nor ranges may have a gap, and what manifests are left must agree.
    """
    out = Path(options.out)
    numbers = {
        epoch: sorted(_number(r, options) for r in sink_rows(out, "events", epoch))
        for epoch in sink_epochs(out, "events")
    }
    ranges: dict[int, tuple[int, int]] = {}
    position = 0
    for epoch in range(max(manifests) + 1):
        found = numbers.get(epoch, [])
        end = position + len(found)
        assert found == list(range(position, end)), f"epoch {epoch}: gap or repeat"
        ranges[epoch] = (position, end)
        position = end
    for epoch, manifest in manifests.items():
        span = manifest.inputs["rows"]
        assert ranges[epoch] == (span.start["row"], span.end["row"])
        assert manifest.parent == (epoch - 1 if epoch else None)
    return ranges


def _number(event: tuple[Any, ...], options: Options) -> int:
    """Return the number of the input row behind a row of the sink."""
    key, seq = int(event[0][1:]), int(event[1])
    if not options.hot:
        return seq * options.keys + key
    if key == 0:
        return seq // 9 * 10 + seq % 9 + 1
    return 10 * (seq * (options.keys - 1) + key - 1)


def _check_runs(manifests: dict[int, Any]) -> None:
    """O7: run numbers never go back along the epochs."""
    runs = [manifests[e].run for e in sorted(manifests)]
    assert runs == sorted(runs), runs


def _check_files(out: Path, name: str, epoch: int, manifest: Any) -> None:
    """The sink's own manifest lists exactly the visible files, all of one run."""
    folder = out / name / f"epoch={epoch:012d}"
    record = out / name / "_riverlock" / f"{epoch:012d}.json"
    visible = {f"{folder.name}/{p.name}": p.stat().st_size for p in folder.glob("*")}
    if not visible:
        assert not record.exists()
        return
    listed = json.loads(record.read_text())
    assert listed["epoch"] == epoch
    assert {f["path"]: f["bytes"] for f in listed["files"]} == visible
    runs = {int(Path(p).name.split("-")[1]) for p in visible}
    assert len(runs) == 1, f"epoch {epoch} was written by runs {runs}"
    assert manifest is None or runs == {manifest.run}


def check_state(catalog: Catalog, epoch: int, reference: Reference) -> None:
    """O3: every variable, list, map and pending timer of every key."""
    manifest = catalog.manifest(epoch)
    track = manifest.operators["track"]
    entries = read_entries(catalog.storage, track, now_us=manifest.now_us)

    def rows(name: str) -> Iterator[tuple[Any, ...]]:
        table = read_variable(entries, track, name)
        return (tuple(r.values()) for r in table.to_pylist())

    assert dict(rows("expected")) == dict(reference.expected)
    assert dict(rows("total")) == dict(reference.totals)
    lists: dict[str, list[int]] = defaultdict(list)
    for key, _, value in sorted(rows("recent")):
        lists[key].append(value)
    assert lists == reference.recent
    assert {(k, b): v for k, b, v in rows("buckets")} == reference.buckets
    timers = read_variable(entries, track, "timers").to_pylist()
    pending = Counter((t["key"], _timer_us(t)) for t in timers)
    ends = Counter((k, (b + 1) * BUCKET_US) for k, b in reference.buckets)
    assert pending == ends
    slides = manifest.operators["slides"]
    entries = read_entries(catalog.storage, slides, now_us=manifest.now_us)
    panes = read_variable(entries, slides, "total").to_pylist()
    stored = {(p["key"], p["pane_end"]): p["total"] for p in panes}
    assert stored == {(k, _instant(e)): n for (k, e), n in reference.panes.items()}


def _instant(us: int) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=us)


def _timer_us(timer: dict[str, Any]) -> int:
    at = next(v for n, v in timer.items() if n not in ("key", "kind"))
    micros: int = round(at.timestamp() * 1_000_000)
    return micros


def check_whole(catalog: Catalog) -> None:
    """O5: every listed snapshot is closed and its checksums are right."""
    problems = [p for report in verify(catalog) for p in report.problems]
    assert not problems, problems


@dataclass(frozen=True)
class _Later(Past):
    """The past of a store that has decided one more epoch."""

    last: int

    @property
    def newest(self) -> int:
        return self.last + 1


def _open_as_a_later_run(root: Path, name: str, newest: int) -> None:
    """Do what a run does first with a sink: what workers left that were killed goes."""
    found = json.loads((root / "_riverlock/owner.json").read_text())
    sink = files(str(root), format=_FORMATS[name])
    mine = {"flow": found["flow"], "sink": found["sink"]}
    FileCommitter(sink).open(Owner(**mine, run=10**6, past=_Later(newest)))


def check_nothing_left(options: Options, *, keep: int) -> None:
    """O6: after a sweep without grace, only what manifests refer to is there."""
    catalog = Catalog(LocalStorage(Path(options.store)))
    for path in Path(options.store, ".tmp").iterdir():
        os.utime(path, (1, 1))  # whoever wrote it is dead; a sweep gives it minutes
    sweep(catalog, Retention(epochs=keep, grace=timedelta(0)))
    for name in sinks_of(options):
        newest = catalog.epochs()[-1]
        _open_as_a_later_run(Path(options.out) / name, name, newest)
    reached = {
        file.path
        for epoch in catalog.epochs()
        for state in catalog.manifest(epoch).operators.values()
        for file in state.files
    }
    there = {e.path for e in catalog.storage.list(catalog.paths.state)}
    assert there == reached
    left = [
        str(path)
        for root in (
            Path(options.store),
            *(Path(options.out) / s for s in sinks_of(options)),
        )
        for folder in (".tmp", "_riverlock/building", "_riverlock/staged")
        for path in (root / folder).rglob("*")
        if path.is_file()
    ]
    assert not left, left
