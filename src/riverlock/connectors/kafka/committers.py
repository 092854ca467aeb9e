"""Committers of the Kafka sink: they send rows that are staged in the store."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import msgspec

from riverlock.connectors.base.committer import (
    check_kept,
    check_past,
    fenced,
    foreign,
    of_the_origin,
)
from riverlock.connectors.kafka.cluster import Cluster
from riverlock.connectors.kafka.markers import Marker
from riverlock.connectors.kafka.producer import (
    PlainProducer,
    ProducerFencedError,
    TransactionalProducer,
)
from riverlock.connectors.kafka.staging import staged_rows
from riverlock.core.errors import (
    CommitRejectedError,
    InvalidConfigError,
    RiverlockError,
    SinkError,
    SnapshotCorruptedError,
    StorageNotFoundError,
)
from riverlock.snapshot.format.records import SinkPlace
from riverlock.snapshot.format.sealed import read_hint, seal
from riverlock.snapshot.format.store_layout import sink_path
from riverlock.snapshot.past import Claim, Commit, commit_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from riverlock.connectors.base.committer import Owner
    from riverlock.connectors.kafka.producer import OutRow
    from riverlock.connectors.kafka.sink import KafkaSink
    from riverlock.snapshot.format.records import SinkOutput
    from riverlock.storage.base import Storage

__all__ = ["KafkaCommitter", "PlainKafkaCommitter"]


@dataclass
class KafkaCommitter:
    """Sends each epoch with its marker in one transaction.

    What can have happened when a producer begins: nothing; the newest epoch was sent by
    this or an older run, and acknowledged or not; an older run is about to send it.
    Beginning fences older producers and settles what they left open; then the marker
    tells. A run whose number is smaller than the marker's sends nothing.
    """

    sink: KafkaSink
    storage: Storage
    uid: str
    guarantee: str = "exactly once, for readers with isolation.level=read_committed"
    _owner: Owner | None = None
    _cluster: Cluster | None = None
    _producer: TransactionalProducer | None = None
    _marker: Marker | None = None
    _partitions: int = field(default=0)

    def probe(self) -> None:
        """Check whether the topic can be written; change nothing.

        Raises:
            InvalidConfigError: The topic does not exist, or takes only smaller records.
            SinkError: The cluster refuses, or does not answer.
        """
        _check_topic(self.sink, self.uid)

    def open(self, owner: Owner) -> None:
        """Take the sink for this run.

        Raises:
            InvalidConfigError: The topic does not exist, the markers of epochs that
                were written are gone, or this is a fork and the topic is that of its
                origin.
            SnapshotCorruptedError: There is no marker, and what says whether there must
                be one is damaged.
            FencedError: A newer run writes this sink.
            ForeignEpochError: It has an epoch that this store has not decided.
            CommitRejectedError: It lacks epochs that it had.
            SinkError: The cluster does not answer.
        """
        self._owner = owner
        self._cluster = Cluster(self.sink.connection, owner.sink)
        self._partitions = self._cluster.check_topic(
            self.sink.topic, self.sink.max_bytes
        )
        self._cluster.make_markers(self.sink.markers)
        self._check_fork(owner, self._cluster)
        self._begin(again=False)

    def _check_fork(self, owner: Owner, cluster: Cluster) -> None:
        """Refuse a topic with records of the flow that we were forked from.

        Its marker does not say which topic it is for: one without records is ours.
        """
        if owner.origin is None or self._known() is not None:
            return
        theirs = Marker(flow=owner.origin, sink=owner.sink, run=0)
        found = cluster.marker(self.sink.markers, theirs)
        if found is not None and cluster.has_records(self.sink.topic, self._partitions):
            raise of_the_origin(owner.sink, f"topic {self.sink.topic!r}")

    def commit(self, epoch: int, output: SinkOutput) -> None:
        """Send the epoch, unless its marker exists."""
        if not output.tokens:
            return
        if self._producer is None:
            self._begin(again=True)
        assert self._owner is not None
        wanted = commit_of(epoch, output)
        if self._is_there(wanted):
            return
        marker = Marker(
            flow=self._owner.flow,
            sink=self._owner.sink,
            run=self._owner.run,
            token=self._owner.token,
            epoch=epoch,
            digest=wanted.digest,
            decided=wanted.run,
        )
        try:
            self._send(marker, output)
        except ProducerFencedError:
            # By an older run that woke up, or by a newer one: the marker tells.
            self._begin(again=True)
            if not self._is_there(wanted):
                self._send(marker, output)

    def _send(self, marker: Marker, output: SinkOutput) -> None:
        producer, epoch = self._producer, marker.epoch
        assert producer is not None
        assert epoch is not None
        rows = self._checked(epoch, staged_rows(self.storage, output))
        try:
            producer.send(self.sink.topic, rows, self.sink.markers, marker)
        except BaseException:
            self._producer = None
            producer.drop()
            raise
        self._marker = marker

    def _is_there(self, wanted: Commit) -> bool:
        """Tell whether an epoch was sent.

        Raises:
            ForeignEpochError: Epochs of another copy of the store were.
        """
        there = _commit(self._marker)
        if there is None or there.epoch < wanted.epoch:
            return False
        if not there.matches(wanted):
            assert self._owner is not None
            raise foreign(self._owner, there, f"topic {self.sink.topic!r}")
        return True

    def _checked(self, epoch: int, rows: Iterator[OutRow]) -> Iterator[OutRow]:
        for row in rows:
            if row.partition is not None and row.partition >= self._partitions:
                raise self._rejected(
                    epoch,
                    f"topic {self.sink.topic!r} has {self._partitions} partitions, none"
                    f" {row.partition}; add partitions and start again",
                )
            yield row

    def _rejected(self, epoch: int | None, what: str) -> CommitRejectedError:
        assert self._owner is not None
        return CommitRejectedError(self._owner.sink, epoch=epoch, what=what)

    def _begin(self, *, again: bool) -> None:
        """Fence other producers, read the marker, and write our run's number to it.

        Args:
            again: Whether this run has written it before: then it must be there.
        """
        owner, cluster = self._owner, self._cluster
        assert owner is not None
        assert cluster is not None
        mine = Marker(
            flow=owner.flow, sink=owner.sink, run=owner.run, token=owner.token
        )
        producer = cluster.transactional(f"riverlock-{owner.flow}-{owner.sink}")
        found = cluster.marker(self.sink.markers, mine)
        if found is None:
            self._check_new(cluster.id())
            found = mine
        try:
            theirs = Claim(run=found.run, token=found.token)
            if not again:
                topic = f"topic {self.sink.topic!r}"
                check_past(owner, theirs, _commit(found), topic)
                place = self.sink.place
                check_kept(owner, _commit(found), place=place, name=topic)
            elif not theirs.matches(owner.claim):
                raise fenced(owner, theirs)
            else:
                self._check_not_older(found)
        except RiverlockError:
            producer.drop()
            raise
        claim = msgspec.structs.replace(found, run=owner.run, token=owner.token)
        producer.send(self.sink.topic, (), self.sink.markers, claim)
        self._remember(cluster.id())
        self._producer, self._marker = producer, claim

    def _check_not_older(self, found: Marker) -> None:
        """Refuse a marker that this run has since replaced: rows went with it."""
        known, there = _commit(self._marker), _commit(found)
        if known is None or (there is not None and there.epoch >= known.epoch):
            return
        had = "no epoch" if there is None else f"epoch {there.epoch}"
        raise self._rejected(
            None,
            f"topic {self.sink.topic!r} was put back while the run wrote to it: it had"
            f" epoch {known.epoch}, and now has {had}; put it back to what it was, or"
            f" restore the store to {had} with `riverlock restore`",
        )

    def _check_new(self, cluster: str) -> None:
        """Refuse to continue if a marker must have existed: epochs could come twice."""
        assert self._owner is not None
        if self._known() == SinkPlace(flow=self._owner.flow, cluster=cluster):
            raise InvalidConfigError(
                f"topic {self.sink.markers!r} for markers",
                expected=f"the marker of sink {self._owner.sink!r}, which was there",
                found="none: without it an epoch could be written twice",
                hint="put the topic back, or give the sink another uid",
            )

    def _remember(self, cluster: str) -> None:
        """Note that the marker exists; also in place of a damaged note."""
        assert self._owner is not None
        sealed = seal(SinkPlace(flow=self._owner.flow, cluster=cluster))
        if self._noted() != sealed:
            self.storage.put(self._path, sealed)

    def _known(self) -> SinkPlace | None:
        """Return where the marker was left; None: nowhere yet.

        Raises:
            SnapshotCorruptedError: That is unknown: epochs could come twice.
        """
        noted = self._noted()
        if noted is None:
            return None
        found = read_hint(noted, SinkPlace)
        if found is None:
            raise SnapshotCorruptedError(
                self._path, expected="where the sink wrote", found="other bytes"
            )
        return found

    def _noted(self) -> bytes | None:
        try:
            return self.storage.get(self._path)
        except StorageNotFoundError:
            return None

    @property
    def _path(self) -> str:
        assert self._owner is not None
        return sink_path(self._owner.sink)


def _commit(marker: Marker | None) -> Commit | None:
    """Return the epoch that a marker names."""
    if marker is None or marker.epoch is None:
        return None
    return Commit(epoch=marker.epoch, run=marker.decided, digest=marker.digest or "")


def _check_topic(sink: KafkaSink, uid: str) -> None:
    Cluster(sink.connection, uid).check_topic(sink.topic, sink.max_bytes)


@dataclass
class PlainKafkaCommitter:
    """Sends epochs without transactions."""

    sink: KafkaSink
    storage: Storage
    uid: str
    guarantee: str = "at least once: after a crash an epoch may be there again"
    _name: str = ""
    _producer: PlainProducer | None = None

    def probe(self) -> None:
        """Check whether the topic can be written; change nothing.

        Raises:
            InvalidConfigError: The topic does not exist, or takes only smaller records.
            SinkError: The cluster refuses, or does not answer.
        """
        _check_topic(self.sink, self.uid)

    def open(self, owner: Owner) -> None:
        """Check that the topic can be written.

        Raises:
            InvalidConfigError: The topic does not exist.
            SinkError: The cluster does not answer.
        """
        self._name = owner.sink
        _check_topic(self.sink, owner.sink)

    def commit(self, epoch: int, output: SinkOutput) -> None:
        """Send the epoch."""
        if not output.tokens:
            return
        if self._producer is None:
            self._producer = PlainProducer(self.sink.connection)
        rows = staged_rows(self.storage, output)
        try:
            self._producer.send(self.sink.topic, rows, self._name, epoch)
        except SinkError:
            self._producer.drop()
            self._producer = None
            raise
