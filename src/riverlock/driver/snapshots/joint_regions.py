"""The regions of several flows as one graph, for the rules of cuts.

What joins them is in their manifests: each says up to where it has read the channels of
which region, of its own flow or another one.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from riverlock.coordinator.cuts.events import Decided
from riverlock.coordinator.cuts.topology import Channel, Topology
from riverlock.snapshot.format.records import InFlight
from riverlock.snapshot.format.store_layout import REGIONS
from riverlock.snapshot.joint.joint_records import CutPart
from riverlock.snapshot.timeline import spans

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from riverlock.coordinator.cuts.cut import CompleteCut
    from riverlock.snapshot.format.records import Manifest
    from riverlock.storage.base import Storage

__all__ = ["JointRegions", "Place", "started_regions"]


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """A region of a flow."""

    flow: str
    region: str

    def __str__(self) -> str:
        """Return its name among the regions of all flows; regions have no slash."""
        return f"{self.flow}/{self.region}"

    @classmethod
    def of(cls, name: str) -> Place:
        """Return the place that a name means."""
        flow, _, region = name.partition("/")
        return cls(flow, region)


@dataclass(frozen=True, slots=True)
class _Joint:
    """A channel: who writes it under which name, who reads it as which source."""

    writer: Place
    channel: str
    reader: Place
    source: str

    @property
    def name(self) -> str:
        return f"{self.writer}/{self.channel} {self.reader}/{self.source}"


@dataclass(frozen=True)
class JointRegions:
    """Which regions take part in a cut, and what joins them.

    Attributes:
        cut: The number of the cut among all flows.
        numbers: Its number in each flow.
        topology: The regions by their names, and their channels.
        joints: The channels.
    """

    cut: int
    numbers: Mapping[str, int]
    topology: Topology
    joints: tuple[_Joint, ...]

    @classmethod
    def found(
        cls, cut: int, numbers: Mapping[str, int], newest: Mapping[Place, Manifest]
    ) -> JointRegions:
        """Return the regions with these newest epochs."""
        joints = [
            joint
            for place, manifest in newest.items()
            for joint, _ in _read(place, manifest)
            if joint.writer in newest
        ]
        channels = [
            Channel(
                name=j.name,
                writer=str(j.writer),
                reader=str(j.reader),
                is_back=_is_back(newest[j.writer], j.channel),
            )
            for j in joints
        ]
        topology = Topology(
            regions=tuple(map(str, sorted(newest))), channels=tuple(channels)
        )
        return cls(cut, numbers, topology, tuple(joints))

    def event(self, place: Place, manifest: Manifest) -> Decided:
        """Return what an epoch says of the cut and of channels."""
        number = self.numbers[place.flow]
        heard = manifest.heard is not None and manifest.heard >= number
        return Decided(
            region=str(place),
            epoch=manifest.epoch,
            heard=self.cut if heard else None,
            positions={joint.name: end for joint, end in _read(place, manifest)},
            markers=(self.cut,) if number in manifest.markers else (),
            rows={
                j.name: manifest.outputs[j.channel].rows
                for j in self.joints
                if j.writer == place and j.channel in manifest.outputs
            },
            timeline=tuple(spans(manifest)),
            reset=manifest.reset,
            flow=place.flow,
        )

    def parts(self, cut: CompleteCut) -> dict[str, CutPart]:
        """Return what of a cut is in each flow."""
        regions: dict[str, dict[str, int]] = defaultdict(dict)
        flying: dict[str, list[InFlight]] = defaultdict(list)
        for name, epoch in cut.epochs.items():
            place = Place.of(name)
            regions[place.flow][place.region] = epoch
        joints = {joint.name: joint for joint in self.joints}
        for span in cut.in_flight:
            joint = joints[span.channel]
            is_inside = joint.reader.flow == joint.writer.flow
            found = InFlight(
                channel=joint.channel,
                writer=joint.writer.region,
                reader=joint.reader.region,
                first=span.first,
                end=span.end,
                rows=span.rows,
                flow="" if is_inside else joint.reader.flow,
            )
            flying[joint.writer.flow].append(found)
        return {
            flow: CutPart(regions=mine, in_flight=tuple(flying[flow]))
            for flow, mine in regions.items()
        }


def _read(place: Place, manifest: Manifest) -> Iterator[tuple[_Joint, int]]:
    """Yield the channels that a region reads, and up to where."""
    for uid, span in manifest.inputs.items():
        end = span.end
        if isinstance(end, dict) and {"region", "channel"} <= end.keys():
            writer = Place(end.get("flow", place.flow), end["region"])
            yield _Joint(writer, end["channel"], place, uid), end["epoch"]


def _is_back(writer: Manifest, channel: str) -> bool:
    output = writer.outputs.get(channel)
    return output is not None and output.is_back


def started_regions(storage: Storage) -> set[str]:
    """Return the regions of a store that ever ran; lists it."""
    listed = (e.path.removeprefix(REGIONS).split("/") for e in storage.list(REGIONS))
    return {region for region, kind, *_ in listed if kind in ("runs", "epochs")}
