"""The http and row sinks against a real server, which remembers what it got."""

from __future__ import annotations

import json
import math
import socket
import threading
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from msgspec import structs

import riverlock as rl
from riverlock.connectors.base.committer import Owner
from riverlock.connectors.base.direct import direct_stager
from riverlock.connectors.base.sink import Probed, Sink, SinkUse
from riverlock.connectors.base.stager import StagePoint
from riverlock.coordinator import AbortReason, FixedDelay
from riverlock.core.errors import (
    CommitRejectedError,
    CommitUnknownError,
    InvalidConfigError,
    InvalidFlowError,
    SinkError,
    SinkUnavailableError,
)
from riverlock.core.types import schema_of
from riverlock.driver.steps.failures import is_retryable, reason_of
from riverlock.snapshot.format.records import SinkOutput
from riverlock.snapshot.past import digest_of
from riverlock.storage.local import LocalStorage
from riverlock.testing import SinkRun


@dataclass
class Receiver:
    """Takes a request for each key once, and answers as it is told to before."""

    url: str = ""
    rows: dict[str, Any] = field(default_factory=dict)
    requests: Counter[str] = field(default_factory=Counter)
    tokens: set[str | None] = field(default_factory=set)
    answers: list[int | None] = field(default_factory=list)  # None: hang up
    said: bytes = b"said"

    def take(self, handler: BaseHTTPRequestHandler) -> int | None:
        length = int(handler.headers["Content-Length"])
        row = json.loads(handler.rfile.read(length))
        key = handler.headers["Idempotency-Key"]
        self.requests[key] += 1
        self.tokens.add(handler.headers["Authorization"])
        answer = self.answers.pop(0) if self.answers else 200
        if answer in (200, None):
            self.rows.setdefault(key, row)
        return answer


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    of = Receiver()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def do_POST(self) -> None:
            answer = of.take(self)
            if answer is None:
                self.close_connection = True
                return
            self.send_response(answer)
            self.send_header("Retry-After", "0")
            self.send_header("Content-Length", str(len(of.said)))
            self.end_headers()
            self.wfile.write(of.said)

        def log_message(self, format: str, *args: Any) -> None:
            del format, args

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    of.url = f"http://127.0.0.1:{server.server_port}/rows"
    yield of
    server.shutdown()
    thread.join()
    server.server_close()


def run(sink: Sink, store: Path, number: int = 1) -> SinkRun:
    return SinkRun(sink=sink, storage=LocalStorage(store), run=number, flow="f")


def rows(count: int) -> list[tuple[Any, ...]]:
    return [(n, f"name {n}", 1) for n in range(count)]


@pytest.mark.parametrize("connections", [1, 4])
def test_rows_arrive_with_keys_that_never_change(
    receiver: Receiver, tmp_path: Path, connections: int
) -> None:
    sink = rl.sinks.http(
        receiver.url,
        headers={"Authorization": "Bearer secret"},
        connections=connections,
        rate=10_000,
    )
    first = run(sink, tmp_path)
    voted = first.stage(1, rows(300), [(900, None, 1)])
    first.commit(1, voted)
    first.commit(1, voted)  # this run knows what it has sent
    assert set(receiver.requests.values()) == {1}
    run(sink, tmp_path, 2).commit(1, voted)  # the next one does not

    assert set(receiver.requests.values()) == {2}
    assert len(receiver.rows) == 301
    epoch = f"1-{digest_of(voted.tokens)[:16]}"
    assert receiver.rows[f"f/conformance/{epoch}/300"] == {
        "id": 900,
        "name": None,
        "epoch": 1,
    }
    assert receiver.tokens == {"Bearer secret"}
    assert "secret" not in repr(sink)


def test_busy_servers_are_asked_again(receiver: Receiver, tmp_path: Path) -> None:
    receiver.answers = [200, 429, 503, 409]
    of = run(rl.sinks.http(receiver.url), tmp_path)
    of.commit(1, of.stage(1, rows(3)))
    assert list(receiver.requests.values()) == [1, 4, 1]
    assert [r["id"] for r in receiver.rows.values()] == [0, 1, 2]


def test_a_server_that_stays_busy_is_left_to_the_driver(
    receiver: Receiver, tmp_path: Path
) -> None:
    of = run(rl.sinks.http(receiver.url), tmp_path)
    voted = of.stage(1, rows(3))
    receiver.answers = [200, *[503] * 5]
    with pytest.raises(SinkError, match="it answers 503: said"):
        of.commit(1, voted)
    of.commit(1, voted)
    assert list(receiver.requests.values()) == [1, 6, 1]


def test_a_server_that_is_not_there_is_waited_for(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # and does not listen
        of = run(rl.sinks.http(f"http://127.0.0.1:{taken.getsockname()[1]}"), tmp_path)
        with pytest.raises(SinkUnavailableError, match="cannot be reached"):
            of.commit(1, of.stage(1, rows(3)))


def test_a_probe_says_whether_somebody_listens(
    receiver: Receiver, tmp_path: Path
) -> None:
    use = SinkUse(uid="out", schema=schema_of("id bigint"), replaces=False)

    def probe(url: str) -> None:
        made = rl.sinks.http(url).committer(use, LocalStorage(tmp_path))
        assert isinstance(made, Probed)
        made.probe()

    probe(receiver.url)
    assert not receiver.requests
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        with pytest.raises(SinkUnavailableError, match="cannot be reached"):
            probe(f"http://me:secret@127.0.0.1:{taken.getsockname()[1]}")


def test_a_row_that_is_refused_stops_the_flow(
    receiver: Receiver, tmp_path: Path
) -> None:
    receiver.answers = [200, 422]
    of = run(rl.sinks.http(receiver.url), tmp_path)
    with pytest.raises(CommitRejectedError, match=r"f/conformance/1-\w+/1 was refused"):
        of.commit(1, of.stage(1, rows(3)))
    assert len(receiver.rows) == 1


def test_a_lost_answer_is_asked_for_again_with_the_same_key(
    receiver: Receiver, tmp_path: Path
) -> None:
    receiver.answers = [200, None]
    of = run(rl.sinks.http(receiver.url), tmp_path)
    voted = of.stage(1, rows(3))
    with pytest.raises(CommitUnknownError, match="no answer to row"):
        of.commit(1, voted)
    of.commit(1, voted)
    assert list(receiver.requests.values()) == [1, 2, 1]
    assert [r["id"] for r in receiver.rows.values()] == [0, 1, 2]


def test_nothing_of_an_address_but_its_host_is_shown(
    receiver: Receiver, tmp_path: Path
) -> None:
    """Webhooks have their secret in the path, others in the query."""
    url = f"{receiver.url}/T000/hush-hush?token=quiet"
    receiver.answers = [404]
    receiver.said = b"no /rows/T000/hush-hush?token=quiet (hush-hush, quiet) here"
    of = run(rl.sinks.http(url), tmp_path)
    with pytest.raises(CommitRejectedError) as refused:
        of.commit(1, of.stage(1, rows(1)))
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        nobody = f"http://127.0.0.1:{taken.getsockname()[1]}/hush-hush?token=quiet"
        of = run(rl.sinks.http(nobody), tmp_path)
        with pytest.raises(SinkUnavailableError) as away:
            of.commit(1, of.stage(1, rows(1)))
    with pytest.raises(InvalidConfigError) as wrong:
        rl.sinks.http("ftp://host/hush-hush?token=quiet")

    for caught in (refused, away, wrong):
        text = str(caught.value) + str(caught.value.__dict__)
        assert "hush-hush" not in text
        assert "quiet" not in text
    assert "127.0.0.1" in str(refused.value)


def test_numbers_that_json_has_no_word_for_are_text(
    receiver: Receiver, tmp_path: Path
) -> None:
    use = SinkUse(uid="out", schema=schema_of("x double"), replaces=False)
    sink, store = rl.sinks.http(receiver.url), LocalStorage(tmp_path)
    values = [1.5, math.nan, math.inf, -math.inf, None]
    at = StagePoint(storage=store, folder="s", epoch=1, attempt="a", flow="f")
    tokens = tuple(sink.stager(use).stage(pa.table({"x": values}), at))
    committer = sink.committer(use, store)
    committer.open(Owner(flow="f", sink="out", run=1))

    committer.commit(1, SinkOutput(kind="http", tokens=tokens, rows=len(values)))

    found = [row["x"] for row in receiver.rows.values()]
    assert found == [1.5, "NaN", "Infinity", "-Infinity", None]


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(InvalidConfigError, match="https://"):
        rl.sinks.http("ftp://me:secret@host/x")
    with pytest.raises(InvalidConfigError, match="POST, PUT, PATCH"):
        rl.sinks.http("http://host", method="GET")
    with pytest.raises(InvalidConfigError, match="above zero"):
        rl.sinks.http("http://host", rate=0)
    use = SinkUse(uid="out", schema=schema_of("id bigint"), replaces=True)
    with pytest.raises(InvalidFlowError, match="removes no rows"):
        rl.sinks.http("http://host").stager(use)


def test_functions_get_each_row_and_go_on_where_they_failed(tmp_path: Path) -> None:
    got: list[tuple[int, str]] = []
    fails = [True]

    def take(row: dict[str, Any], id: str) -> None:
        if row["id"] == 2 and fails:
            fails.pop()
            raise OSError("away")
        got.append((row["id"], id))

    of = run(rl.sinks.for_each_row(take), tmp_path)
    voted = of.stage(5, rows(2), [(2, "x", 5), (3, "y", 5)])
    with pytest.raises(OSError, match="away"):
        of.commit(5, voted)
    of.commit(5, voted)
    epoch = f"5-{digest_of(voted.tokens)[:16]}"
    assert got == [(n, f"f/conformance/{epoch}/{n}") for n in range(4)]

    # A store that was put back decides the number again: a receiver takes them.
    again = of.stage(5, rows(2))
    of.commit(5, again)
    assert len({id for _, id in got}) == 6

    # What an older version has decided keeps the ids that it gave.
    got.clear()
    of.commit(5, structs.replace(voted, run=""))
    assert got == [(n, f"f/conformance/5/{n}") for n in range(4)]


def test_in_an_at_least_once_region_rows_leave_with_their_task(
    receiver: Receiver, tmp_path: Path
) -> None:
    # The third row finds a server that hangs up: its epoch is tried again.
    receiver.answers = [200, 200, None]
    flow = rl.Flow("direct", key_groups=2, guarantee="at least once")
    read = flow.read(rl.testing.rows("n long", [(n,) for n in range(5)]), uid="in")
    read.write(rl.sinks.http(receiver.url), uid="out")
    flow.run(
        str(tmp_path / "s"),
        execution="local",
        available_now=True,
        restart=FixedDelay(delay_us=1, attempts=2),
    )
    found = Counter(row["n"] for row in receiver.rows.values())
    assert found == Counter([*range(5), 0, 1, 2])
    # A row that comes again is another request: its id is that of the attempt.
    assert len(receiver.rows) == 8
    assert set(receiver.requests.values()) == {1}


def test_a_server_that_is_away_is_waited_for_by_tasks(
    receiver: Receiver, tmp_path: Path
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        nowhere = closed.getsockname()[1]
    use = SinkUse(uid="out", schema=schema_of("n long"), replaces=False)
    sink = rl.sinks.http(f"http://127.0.0.1:{nowhere}/")
    stager = direct_stager(sink, use, "at least once")
    assert stager is not None
    at = StagePoint(
        storage=LocalStorage(tmp_path), folder="staged", epoch=3, attempt="a"
    )
    with pytest.raises(SinkUnavailableError) as caught:
        stager.stage(pa.table({"n": [1]}), at)
    assert is_retryable(caught.value)
    assert reason_of(caught.value) is AbortReason.AWAY
    receiver.answers = [400]
    refused = direct_stager(rl.sinks.http(receiver.url), use, "at least once")
    assert refused is not None
    with pytest.raises(CommitRejectedError) as final:
        refused.stage(pa.table({"n": [1]}), at)
    assert not is_retryable(final.value)
