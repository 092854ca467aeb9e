"""Everything that is wrong with a store: damaged, missing and foreign files.

``verify`` checks epochs; this checks every file: each must be what the format says, or
is not part of the format at all.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from riverlock.core.errors import RiverlockError, SnapshotError, StorageNotFoundError
from riverlock.snapshot.format.channels import Segment
from riverlock.snapshot.format.cuts.cut_records import CutAbandoned, Reset, Restoring
from riverlock.snapshot.format.parents import locate
from riverlock.snapshot.format.records import (
    CHANNEL,
    CutProposal,
    Expiring,
    ForkRecord,
    LeaseRecord,
    Merged,
    Named,
    Origin,
    Request,
    Run,
    SinkPlace,
    Start,
)
from riverlock.snapshot.format.references import source_lists, state_files
from riverlock.snapshot.format.run_status import Status
from riverlock.snapshot.format.sealed import checksum, read_hint, unseal
from riverlock.snapshot.format.store_layout import FORKING, RESTORING, SINKS, epoch_of
from riverlock.snapshot.joint.joint_records import CutBegun, CutDecided, ReaderRecord
from riverlock.snapshot.kept_epochs import held_by
from riverlock.snapshot.owner import Beat
from riverlock.snapshot.stands import Stand
from riverlock.snapshot.verbs.verify import EpochReport, verify

if TYPE_CHECKING:
    from riverlock.snapshot.catalog import Catalog
    from riverlock.snapshot.format.records import Manifest

__all__ = ["QUARANTINE", "Damage", "Inspection", "inspect"]

QUARANTINE = "quarantine/"
_REGION = r"regions/[^/]+/"
_SEALED: dict[str, Any] = {
    rf"{_REGION}runs/\d+\.json": Run,
    rf"{_REGION}requests/\d+\.json": Request,
    rf"{_REGION}expiring/[^/]+\.json": Expiring,
    rf"{_REGION}starting/[^/]+\.json": Start,
    rf"{_REGION}merged/[^/]+\.json": Merged,
    r"snapshots/[^/]+\.json": Named,
    r"leases/[^/]+\.json": LeaseRecord,
    r"cuts/\d+\.json": CutProposal,
    r"cuts/abandoned/\d+\.json": CutAbandoned,
    r"cuts/begun/\d+\.json": CutBegun,
    r"cuts/decided/[^/]+\.json": CutDecided,
    r"readers/[^/]+/[^/]+\.json": ReaderRecord,
    r"resets/\d+\.json": Reset,
    re.escape(RESTORING): Restoring,
    r"forks/[^/]+\.json": ForkRecord,
    r"parents/[^/]+\.json": Origin,
    re.escape(FORKING): ForkRecord,
    r"channels/[^/]+/segments/\d+\.json": Segment,
}
# Overwritten; those of older writers are not sealed.
_HINTS: dict[str, Any] = {
    rf"{_REGION}owner\.json": Beat,
    rf"{_REGION}status\.json": Status,
    rf"{_REGION}circle\.json": Stand,
    rf"{SINKS}[^/]+\.json": SinkPlace,
}
# Checked elsewhere, or not ours to check.
_OTHERS = (
    r"flow\.json",
    rf"{_REGION}epochs/\d+\.json",
    rf"{_REGION}(state|lists|staged|sources|channels)/.+",
    r"cuts/drained/\d+\.json",
    # Requests of earlier versions, which nobody reads any more.
    rf"{_REGION}(stops/.+|request\.json)",
    r"channels/[^/]+/(data|landing)/.+",
    r"parents/[^/]+/.+",
    rf"{QUARANTINE}.+",
    r"\..*",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Damage:
    """A file that is missing or not what was written.

    Attributes:
        path: The file.
        problem: What is wrong with it.
        affects: What cannot be used because of it.
    """

    path: str
    problem: str
    affects: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Inspection:
    """What was found.

    Attributes:
        epochs: Each epoch that is kept, oldest first.
        damages: Files that are damaged or missing.
        foreign: Files that are not part of the format.
        leftovers: Files that nothing refers to: from interrupted work, or not yet
            deleted by retention. They do no harm.
    """

    epochs: tuple[EpochReport, ...]
    damages: tuple[Damage, ...]
    foreign: tuple[str, ...]
    leftovers: tuple[str, ...]

    @property
    def is_whole(self) -> bool:
        """Whether nothing is damaged."""
        return not self.damages and all(r.is_whole for r in self.epochs)

    @property
    def newest_whole(self) -> int | None:
        """The newest epoch that one can go back to."""
        whole = [r.epoch for r in self.epochs if r.is_whole]
        return whole[-1] if whole else None


def inspect(catalog: Catalog) -> Inspection:
    """Check every file of a store; change nothing.

    Raises:
        SnapshotError: ``flow.json`` is missing, damaged or of a newer version.
    """
    found, reports = _Findings(catalog), []
    for region in catalog.regions() or [catalog.region]:
        part = catalog.of(region)
        mine = list(verify(part))
        for report in mine:
            found.take_epoch(part, report)
        found.check_names(part, {r.epoch for r in mine})
        reports += mine
    for entry in catalog.storage.list():
        found.take_file(entry.path)
    return Inspection(
        epochs=tuple(reports),
        damages=tuple(found.damages[p] for p in sorted(found.damages)),
        foreign=tuple(found.foreign),
        leftovers=tuple(found.leftovers),
    )


@dataclass
class _Findings:
    catalog: Catalog
    damages: dict[str, Damage] = field(default_factory=dict)
    foreign: list[str] = field(default_factory=list)
    leftovers: list[str] = field(default_factory=list)
    _reached: set[str] = field(default_factory=set)

    def _damage(self, path: str, problem: str, affects: str) -> None:
        before = self.damages.get(path)
        if before is not None and affects not in before.affects:
            affects = f"{before.affects}; {affects}"
        elif before is not None:
            affects = before.affects
        self.damages[path] = Damage(path=path, problem=problem, affects=affects)

    def take_epoch(self, catalog: Catalog, report: EpochReport) -> None:
        """Note the files of an epoch, and what their damage affects."""
        path, epoch = catalog.paths.manifest(report.epoch), report.epoch
        try:
            stored = catalog.stored(epoch)
            if self._take_lists(stored, report):
                return
            manifest = catalog.manifest(epoch)
        except RiverlockError as error:
            self._damage(path, str(error), f"epoch {epoch}")
            return
        if (manifest.epoch, manifest.flow) != (epoch, self.catalog.flow().id):
            self._damage(path, report.problems[0], f"epoch {epoch}")
            return
        self._take_references(manifest, report)
        self._take_outputs(manifest, is_newest=epoch == catalog.epochs()[-1])

    def _take_lists(self, stored: Manifest, report: EpochReport) -> bool:
        """Note the lists of state files; tell whether one is damaged."""
        is_damaged = False
        for uid, state in stored.operators.items():
            for each in state.lists:
                self._reached.add(each.path)
                for problem in report.problems:
                    if f" {each.path}:" in problem:
                        is_damaged = True
                        affects = f"operator {uid} in epoch {stored.epoch}"
                        self._damage(each.path, problem, affects)
        return is_damaged

    def _take_references(self, manifest: Manifest, report: EpochReport) -> None:
        epoch = report.epoch
        broken = {
            path: problem
            for problem in report.problems
            for path in _paths(manifest)
            if f" {path}:" in problem
        }
        for uid, state in manifest.operators.items():
            for file in state.files:
                self._reached.add(file.path)
                if file.path in broken:
                    groups = f"key groups {file.first_group} to {file.end_group - 1}"
                    affects = f"operator {uid}, {groups}, in epoch {epoch}"
                    self._damage(file.path, broken[file.path], affects)
        for path in source_lists(manifest):
            self._reached.add(path)
            if path in broken:
                self._damage(path, broken[path], f"inputs of epoch {epoch}")

    def _take_outputs(self, manifest: Manifest, *, is_newest: bool) -> None:
        """Check staged outputs; those of the newest epoch must be there.

        So must all that other regions may read.
        """
        for uid, output in manifest.outputs.items():
            for token in output.tokens:
                path = token.get("path") if isinstance(token, dict) else None
                if not isinstance(path, str) or "checksum" not in token:
                    continue
                self._reached.add(path)
                is_channel = output.kind == CHANNEL
                affects = f"output of epoch {manifest.epoch} for sink {uid}, unless it"
                affects += " is committed"
                if is_channel:
                    affects = f"rows of channel {uid}, unless they were read"
                must = is_newest or is_channel
                self._check_content(path, token["checksum"], affects, must=must)

    def _check_content(
        self, path: str, expected: str, affects: str, *, must: bool
    ) -> None:
        home, inner = locate(self.catalog.storage, path)
        try:
            found = checksum(home.get(inner))
        except StorageNotFoundError:
            if must:
                self._damage(path, f"{path} is missing", affects)
            return
        if found != expected:
            problem = f"{path} has checksum {found}, expected {expected}"
            self._damage(path, problem, affects)

    def take_file(self, path: str) -> None:
        """Check a file by its place."""
        for pattern, kind in _SEALED.items():
            if re.fullmatch(pattern, path):
                self._check_record(path, kind)
                return
        for pattern, kind in _HINTS.items():
            if re.fullmatch(pattern, path):
                self._check_hint(path, kind)
                return
        if not any(re.fullmatch(pattern, path) for pattern in _OTHERS):
            self.foreign.append(path)
        elif re.match(rf"{_REGION}sources/", path):
            self._check_list(path)
        elif _is_referable(path) and path not in self._reached:
            self.leftovers.append(path)

    def _check_list(self, path: str) -> None:
        if path in self._reached:
            return
        self.leftovers.append(path)
        if checksum(self.catalog.storage.get(path)) not in path:
            problem = f"{path} does not have the checksum in its name"
            self._damage(path, problem, "nothing: no epoch refers to it")

    def _check_hint(self, path: str, kind: Any) -> None:
        if read_hint(self.catalog.storage.get(path), kind) is None:
            problem = f"{path} cannot be read, or its checksum differs"
            self._damage(path, problem, _affected_by(path))

    def _check_record(self, path: str, kind: Any) -> None:
        try:
            record = unseal(self.catalog.storage.get(path), kind, path=path)
        except StorageNotFoundError:
            return  # a name or lease may go at any time
        except SnapshotError as error:
            self._damage(path, error.message, _affected_by(path))
            return
        if isinstance(record, Run) and record.run != epoch_of(path):
            self._damage(path, f"{path} is run {record.run}", _affected_by(path))
        if isinstance(record, Segment):
            for file in record.files:
                affects = f"segment {record.number} of its channel"
                self._check_content(file["path"], file["checksum"], affects, must=True)

    def check_names(self, catalog: Catalog, epochs: set[int]) -> None:
        """Check that what has a name exists."""
        for entry in self.catalog.storage.list("snapshots/"):
            if entry.path in self.damages:
                continue
            data = self.catalog.storage.get(entry.path)
            held = held_by(unseal(data, Named, path=entry.path))
            mine = {epoch for region, epoch in held if region == catalog.region}
            for epoch in sorted(mine - epochs):
                problem = f"{entry.path} names epoch {epoch}, which does not exist"
                self._damage(entry.path, problem, "the name")


def _is_referable(path: str) -> bool:
    return re.fullmatch(rf"{_REGION}(state|lists|staged|channels)/.+", path) is not None


def _paths(manifest: Manifest) -> list[str]:
    return [*(f.path for f in state_files(manifest)), *source_lists(manifest)]


def _affected_by(path: str) -> str:
    if path.endswith(("/owner.json", "/status.json", "/circle.json")):
        return "nothing: the next run writes it again"
    if path.startswith(SINKS):
        return "nothing while Kafka has the sink's marker: a start writes it again"
    if "/starting/" in path:
        return "nothing but who sees that a start is in progress"
    if "/runs/" in path:
        return "nothing but who ran then: its number is in its name"
    if "/merged/" in path:
        return "nothing: files are merged again"
    if path.startswith("channels/"):
        return "input that landed there and was not read yet"
    if path.startswith("parents/"):
        return "state files in the store it names"
    return "what it pins"
