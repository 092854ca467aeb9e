"""Every sink keeps the promises of the suite that is shipped."""

from __future__ import annotations

import json
import re
import socket
import sqlite3
import uuid
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import redis
from deltalake import DeltaTable
from tests.servers.mariadb import PASSWORD as MARIADB_PASSWORD
from tests.servers.mariadb import Mariadb
from tests.servers.postgres import PASSWORD as PG_PASSWORD
from tests.servers.postgres import Postgres
from tests.servers.redis import redis_server
from tests.servers.s3 import s3_settings

import riverlock as rl
from riverlock.connectors.base.committer import Owner, check_kept, fenced, foreign
from riverlock.connectors.base.sink import Probed, Sink, SinkUse
from riverlock.connectors.base.stager import StagePoint
from riverlock.connectors.databases.sink import SqlSink
from riverlock.connectors.delta.sink import DeltaSink
from riverlock.connectors.files.sink import FileSink
from riverlock.core.errors import SinkUnavailableError
from riverlock.core.types import schema_of
from riverlock.snapshot.format.records import SinkOutput
from riverlock.snapshot.past import Claim, Commit, commit_of
from riverlock.storage import Storage
from riverlock.storage.local import LocalStorage
from riverlock.storage.object import ObjectStorage
from riverlock.storage.open import open_storage
from riverlock.testing import SinkConformance, SinkRun


class TestFiles(SinkConformance):
    def make_sink(self, folder: Path) -> Sink:
        return rl.sinks.files(str(folder / "out"), format="json")

    def read_rows(self, sink: Sink) -> Iterable[tuple[object, ...]]:
        assert isinstance(sink, FileSink)
        for path in Path(sink.path).glob("epoch=*/*.json"):
            for line in path.read_text().splitlines():
                yield tuple(json.loads(line).values())

    def leftovers(self, sink: Sink) -> Iterable[str]:
        assert isinstance(sink, FileSink)
        hidden = Path(sink.path, "_riverlock")
        for place in ("staged", "building"):
            yield from (str(p) for p in (hidden / place).rglob("*") if p.is_file())


class TestSqlite(SinkConformance):
    how = "append"

    def make_sink(self, folder: Path) -> Sink:
        url = f"sqlite:///{folder}/out.db"
        key = ["id"] if self.how == "upsert" else []
        return rl.sinks.sql(url, table="out", how=self.how, key=key, create=True)

    def read_rows(self, sink: Sink) -> Iterable[tuple[object, ...]]:
        assert isinstance(sink, SqlSink)
        with closing(sqlite3.connect(sink.address.database, timeout=60)) as database:
            return database.execute("SELECT id, name, epoch FROM out").fetchall()


class TestSqliteUpsert(TestSqlite):
    how = "upsert"


class TestPostgres(SinkConformance):
    how = "upsert"
    secret = PG_PASSWORD

    @pytest.fixture(autouse=True)
    def _server(self, postgres: Postgres) -> None:
        self.server = postgres

    def make_sink(self, folder: Path) -> Sink:
        self.schema = f"s{uuid.uuid4().hex[:8]}"
        self.server.query(f"CREATE SCHEMA {self.schema}")
        return rl.sinks.sql(
            self.server.url(),
            table=f"{self.schema}.out",
            how=self.how,
            key=["id"] if self.how == "upsert" else [],
            create=True,
        )

    def read_rows(self, sink: Sink) -> Iterable[tuple[object, ...]]:
        return self.server.query(f"SELECT id, name, epoch FROM {self.schema}.out")

    def leftovers(self, sink: Sink) -> Iterable[str]:
        found = self.server.query(
            "SELECT table_name FROM information_schema.tables WHERE table_schema = %s",
            self.schema,
        )
        return sorted({n for (n,) in found} - {"out", "riverlock_epochs"})


class TestMariadb(TestPostgres):
    how = "append"
    secret = MARIADB_PASSWORD

    @pytest.fixture(autouse=True)
    def _server(self, mariadb: Mariadb) -> None:
        self.server = mariadb  # type: ignore[assignment]


class TestDelta(SinkConformance):
    def make_sink(self, folder: Path) -> Sink:
        return rl.sinks.delta(str(folder / "table"))

    def read_rows(self, sink: Sink) -> Iterable[tuple[object, ...]]:
        assert isinstance(sink, DeltaSink)
        if not DeltaTable.is_deltatable(sink.path):
            return
        for row in DeltaTable(sink.path).to_pyarrow_table().to_pylist():
            yield row["id"], row["name"], row["epoch"]


class InAnObjectStore:
    steps = 15

    @pytest.fixture(autouse=True)
    def _settings(self, s3_endpoint: str, monkeypatch: pytest.MonkeyPatch) -> None:
        for name, value in s3_settings(s3_endpoint).items():
            monkeypatch.setenv(name, value)


@pytest.mark.parametrize(
    "sink",
    [
        rl.sinks.delta("s3://bucket/probed"),
        rl.sinks.files("s3://bucket/probed", format="json"),
    ],
    ids=["delta", "files"],
)
def test_a_probe_says_whether_the_object_store_answers(
    sink: DeltaSink | FileSink,
    s3_endpoint: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    use = SinkUse(uid="out", schema=schema_of("k string"), replaces=False)

    def probe(endpoint: str) -> None:
        for name, value in s3_settings(endpoint).items():
            monkeypatch.setenv(name, value)
        committer = sink.committer(use, LocalStorage(tmp_path))
        assert isinstance(committer, Probed)
        committer.probe()

    probe(s3_endpoint)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # nobody listens there
        with pytest.raises(SinkUnavailableError):
            probe(f"http://127.0.0.1:{taken.getsockname()[1]}")


class TestDeltaInAnObjectStore(InAnObjectStore, TestDelta):
    def make_sink(self, folder: Path) -> Sink:
        return rl.sinks.delta(f"s3://bucket/{folder.name}/table")


class TestFilesInAnObjectStore(InAnObjectStore, SinkConformance):
    def make_sink(self, folder: Path) -> Sink:
        return rl.sinks.files(f"s3://bucket/{folder.name}/out", format="json")

    def read_rows(self, sink: Sink) -> Iterable[tuple[object, ...]]:
        """Read as one must there: what the listings name."""
        assert isinstance(sink, FileSink)
        root = open_storage(sink.path)
        for entry in root.list("_riverlock/"):
            if re.fullmatch(r"_riverlock/\d+.json", entry.path):
                for file in json.loads(root.get(entry.path))["files"]:
                    for line in root.get(file["path"]).splitlines():
                        yield tuple(json.loads(line).values())

    def leftovers(self, sink: Sink) -> Iterable[str]:
        assert isinstance(sink, FileSink)
        return [e.path for e in open_storage(sink.path).list("_riverlock/staged/")]

    def test_files_in_sight_are_those_that_are_listed(self, tmp_path: Path) -> None:
        sink = self.make_sink(tmp_path)
        of = SinkRun(sink=sink, storage=LocalStorage(tmp_path), run=1, flow="f")
        of.stage(1, [(7, "never voted for", 1)])
        of.commit(1, of.stage(1, [(8, "a", 1)], [(9, "b", 1)]))
        assert isinstance(sink, FileSink)
        assert len(self.in_sight(sink)) == 2
        assert {id for id, *_ in self.read_rows(sink)} == {8, 9}

    def test_epochs_that_were_undone_are_taken_away_and_back(
        self, tmp_path: Path
    ) -> None:
        sink = self.make_sink(tmp_path)
        of = SinkRun(sink=sink, storage=LocalStorage(tmp_path), run=1, flow="f")
        for epoch in (1, 2, 3):
            of.commit(epoch, of.stage(epoch, [(epoch, "a", epoch)]))
        assert isinstance(sink, FileSink)
        # A crash came between a listing and its files.
        root = ObjectStorage(sink.path)
        listing = "_riverlock/000000000002.json"
        root.copy(listing, f"_riverlock/withdrawn/{of.token}/000000000002.json")
        root.delete(listing)

        undo = SinkOutput(kind="files", tokens=({"withdraw": [[2, 3]]},))
        of.commit(4, undo)
        of.commit(4, undo)
        assert {id for id, *_ in self.read_rows(sink)} == {1}
        assert len(self.in_sight(sink)) == 1

        back = {"withdraw": [], "reinstate": [[3, 3]]}
        of.commit(5, SinkOutput(kind="files", tokens=(back,)))
        assert {id for id, *_ in self.read_rows(sink)} == {1, 3}
        assert len(self.in_sight(sink)) == 2

    def in_sight(self, sink: Sink) -> list[str]:
        assert isinstance(sink, FileSink)
        found = (e.path for e in open_storage(sink.path).list())
        return [path for path in found if path[0] != "_"]


class TestRedis(SinkConformance):
    @pytest.fixture(autouse=True)
    def _server(self, tmp_path: Path) -> Iterator[None]:
        with redis_server(tmp_path) as self.url:
            yield

    def make_sink(self, folder: Path) -> Sink:
        return rl.sinks.redis(self.url, key="rows", shape="stream")

    def read_rows(self, sink: Sink) -> Iterable[tuple[object, ...]]:
        entries: Any = redis.Redis.from_url(self.url).xrange("rows")
        for _, entry in entries:
            yield tuple(json.loads(entry[b"row"]).values())


@dataclass(frozen=True)
class LinesSink:
    """A sink of somebody else's: one file of lines per epoch, made by one rename."""

    folder: str
    kind: str = "lines"

    def stager(self, use: SinkUse) -> LinesStager:
        return LinesStager(self.folder)

    def committer(self, use: SinkUse, storage: Storage) -> LinesCommitter:
        return LinesCommitter(Path(self.folder))


@dataclass(frozen=True)
class LinesStager:
    folder: str

    def stage(self, table: pa.Table, at: StagePoint) -> list[Any]:
        staged = Path(self.folder, "staged", f"{at.epoch}-{at.attempt}")
        staged.parent.mkdir(parents=True, exist_ok=True)
        lines = [json.dumps(list(row.values())) for row in table.to_pylist()]
        staged.write_text("\n".join(lines) + "\n")
        return [staged.name]


@dataclass
class LinesCommitter:
    folder: Path
    guarantee: str = "exactly once: an epoch is one file"
    owner: Owner | None = None

    def open(self, owner: Owner) -> None:
        (self.folder / "staged").mkdir(parents=True, exist_ok=True)
        self.owner, newest = owner, None
        for path in self.folder.glob("*.txt"):
            epoch, run, digest = path.stem.split("-")
            found = Commit(epoch=int(epoch), run=run, digest=digest)
            if not owner.past.has(found, owner.sink):
                raise foreign(owner, found, str(self.folder))
            newest = max(newest or found, found, key=lambda commit: commit.epoch)
        check_kept(owner, newest, place="", name=str(self.folder))
        (self.folder / "owner").write_text(owner.token)

    def commit(self, epoch: int, output: SinkOutput) -> None:
        assert self.owner is not None
        if (self.folder / "owner").read_text() != self.owner.token:
            raise fenced(self.owner, Claim(run=self.owner.run))
        told = commit_of(epoch, output)
        staged = self.folder / "staged"
        final = self.folder / f"{epoch}-{told.run}-{told.digest}.txt"
        if output.tokens and not final.exists():
            building = staged / f"{epoch}-{uuid.uuid4().hex}.part"
            building.write_text(
                "".join((staged / t).read_text() for t in output.tokens)
            )
            building.rename(final)
        for path in staged.iterdir():
            if int(path.name.partition("-")[0]) <= epoch:
                path.unlink()


class TestOwnSink(SinkConformance):
    def make_sink(self, folder: Path) -> Sink:
        return LinesSink(str(folder / "lines"))

    def read_rows(self, sink: Sink) -> Iterable[tuple[object, ...]]:
        assert isinstance(sink, LinesSink)
        for path in Path(sink.folder).glob("*.txt"):
            yield from (tuple(json.loads(x)) for x in path.read_text().splitlines())

    def leftovers(self, sink: Sink) -> Iterable[str]:
        assert isinstance(sink, LinesSink)
        return [p.name for p in Path(sink.folder, "staged").iterdir()]


class NumberingCommitter(LinesCommitter):
    """A mistake that the suite must find: an epoch is known by its number."""

    def open(self, owner: Owner) -> None:
        (self.folder / "staged").mkdir(parents=True, exist_ok=True)

    def commit(self, epoch: int, output: SinkOutput) -> None:
        final = self.folder / f"{epoch}.txt"
        if not final.exists():
            texts = [(self.folder / "staged" / t).read_text() for t in output.tokens]
            final.write_text("".join(texts))


class NumberingSink(LinesSink):
    def committer(self, use: SinkUse, storage: Storage) -> LinesCommitter:
        return NumberingCommitter(Path(self.folder))


@pytest.mark.parametrize(
    "test",
    [
        SinkConformance.test_a_store_put_back_is_not_taken_for_the_one_that_wrote,
        SinkConformance.test_a_store_put_back_whose_next_rows_come_later,
        SinkConformance.test_a_run_whose_sink_a_copy_of_the_store_took_stops,
        SinkConformance.test_a_sink_put_back_from_a_backup_of_its_own_is_told,
        SinkConformance.test_a_sink_that_lost_all_it_had_is_told,
    ],
)
def test_the_suite_finds_a_sink_that_goes_by_numbers(tmp_path: Path, test: Any) -> None:
    class Suite(TestOwnSink):
        def make_sink(self, folder: Path) -> Sink:
            return NumberingSink(str(folder / "lines"))

    Suite().test_runs_continue_where_others_ended(tmp_path / "fine")
    with pytest.raises(AssertionError, match=r"too many|both write|missing"):
        test(Suite(), tmp_path)


class RepeatingCommitter(LinesCommitter):
    """A mistake that the suite must find: it commits again what is there."""

    def open(self, owner: Owner) -> None:
        (self.folder / "staged").mkdir(parents=True, exist_ok=True)

    def commit(self, epoch: int, output: SinkOutput) -> None:
        staged = self.folder / "staged"
        with (self.folder / "all.txt").open("a") as out:
            out.writelines((staged / t).read_text() for t in output.tokens)


class RepeatingSink(LinesSink):
    def committer(self, use: SinkUse, storage: Storage) -> LinesCommitter:
        return RepeatingCommitter(Path(self.folder))


def test_the_suite_finds_a_sink_that_repeats(tmp_path: Path) -> None:
    class Suite(TestOwnSink):
        def make_sink(self, folder: Path) -> Sink:
            return RepeatingSink(str(folder / "lines"))

    Suite().test_staged_rows_are_invisible_until_the_commit(tmp_path / "fine")
    with pytest.raises(AssertionError, match="too many"):
        Suite().test_a_commit_can_be_repeated(tmp_path / "repeated")
    with pytest.raises(AssertionError, match="too many"):
        Suite().test_a_zombie_changes_nothing(tmp_path / "zombie")
