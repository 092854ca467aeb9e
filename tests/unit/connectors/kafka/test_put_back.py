"""A cluster that is put back from a backup while a run writes to it."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest

import riverlock as rl
from riverlock.connectors.base.committer import Owner
from riverlock.connectors.kafka.committers import KafkaCommitter
from riverlock.connectors.kafka.markers import Marker
from riverlock.core.errors import CommitRejectedError
from riverlock.storage import LocalStorage

OURS = Marker(flow="f", sink="out", run=1, token="t", epoch=7, digest="d", decided="t")


@dataclass
class _Cluster:
    """What the committer asks of a cluster; nothing is sent."""

    found: Marker | None
    sent: list[Any] = field(default_factory=list)
    dropped: int = 0

    def transactional(self, _: str) -> _Cluster:
        return self

    def marker(self, _: str, mine: Marker) -> Marker | None:
        return self.found

    def id(self) -> str:
        return "cluster"

    def send(self, *what: Any) -> None:
        self.sent.append(what)

    def drop(self) -> None:
        self.dropped += 1


def _committer(tmp_path: Path, cluster: _Cluster) -> KafkaCommitter:
    sink = rl.sinks.kafka("localhost:1", "out")
    made = KafkaCommitter(sink, LocalStorage(tmp_path), "out")
    made._owner = Owner(flow="f", sink="out", run=1, token="t")
    made._cluster = cast("Any", cluster)
    made._marker = OURS
    return made


@pytest.mark.parametrize("epoch", [None, 0, 6])
def test_a_marker_older_than_the_one_we_wrote_ends_the_run(
    tmp_path: Path, epoch: int | None
) -> None:
    cluster = _Cluster(msgspec.structs.replace(OURS, epoch=epoch))

    with pytest.raises(CommitRejectedError, match="put back"):
        _committer(tmp_path, cluster)._begin(again=True)

    assert cluster.sent == []
    assert cluster.dropped == 1


@pytest.mark.parametrize("epoch", [7, 8])
def test_a_marker_as_new_as_ours_is_gone_on_from(tmp_path: Path, epoch: int) -> None:
    """A later one is ours as well: the answer to it was lost."""
    cluster = _Cluster(msgspec.structs.replace(OURS, epoch=epoch))
    committer = _committer(tmp_path, cluster)

    committer._begin(again=True)

    assert committer._marker is not None
    assert committer._marker.epoch == epoch
    assert len(cluster.sent) == 1
