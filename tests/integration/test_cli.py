"""The command line on a real Spark session, and as a process of its own."""

from __future__ import annotations

import itertools
import json
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from pyspark.sql import SparkSession

from riverlock.cli import main

pytestmark = pytest.mark.spark

APP = """\
from pyspark.sql import functions as F

import riverlock as rl

import cli_neighbour

TWICE = F.col("n") * 2  # at module level: needs a session


class Sums(rl.Process):
    output = "k long, total long"
    total = rl.Value("long", default=0)

    def on_event(self, row, ctx):
        if row.n == BAD:
            raise ValueError("odd record")
        self.total += cli_neighbour.half(row.twice)
        yield row.k, self.total


BAD = {bad}


def build() -> rl.Flow:
    flow = rl.Flow("sums")
    rows = flow.read(
        rl.sources.generator({{"k": "id % 5", "n": "id"}}, {rows})
    ).with_column("twice", TWICE)
    rows.key_by("k").process(Sums(), uid="sums").write(
        rl.sinks.files({out!r}, format="json")
    )
    return flow


if __name__ == "__main__":
    raise AssertionError
"""


@pytest.fixture
def cli() -> Callable[..., Result]:
    def call(*words: object) -> Result:
        return CliRunner().invoke(main, [str(w) for w in words])

    return call


@pytest.fixture
def write_app(tmp_path: Path) -> Iterator[Callable[..., Path]]:
    path, modules = list(sys.path), set(sys.modules)

    def write(*, bad: int = -1, rows: str = "rows=100") -> Path:
        (tmp_path / "cli_neighbour.py").write_text("def half(x):\n    return x // 2\n")
        app = tmp_path / "cli_app.py"
        app.write_text(APP.format(bad=bad, rows=rows, out=str(tmp_path / "out")))
        return app

    yield write
    sys.path[:] = path
    for name in set(sys.modules) - modules:
        if "cli_app" in name or name == "cli_neighbour":
            del sys.modules[name]


def _output(folder: Path) -> list[dict[str, Any]]:
    return [
        json.loads(line)
        for file in sorted(folder.glob("epoch=*/*.json"))
        for line in file.read_text().splitlines()
    ]


def test_run_then_look_at_everything(
    spark: SparkSession, cli: Any, write_app: Any, tmp_path: Path
) -> None:
    app, store = write_app(), tmp_path / "store"
    limits = ("--available-now", "--max-rows-per-epoch", 40)

    done = cli("run", app, "--store", store, *limits)

    assert done.exit_code == 0, done.output
    assert "sums: done: 3 epochs, 100 records" in done.stderr
    assert len(_output(tmp_path / "out")) == 100
    totals = json.loads(cli("state", store, "sums", "total", "--json").stdout)
    expected = {k: sum(range(k, 100, 5)) for k in range(5)}
    assert {r["k"]: r["total"] for r in totals["rows"]} == expected
    one = json.loads(cli("state", store, "sums", "total", "--key", 3, "--json").stdout)
    assert one["rows"] == [{"k": 3, "total": expected[3]}]
    status = json.loads(cli("status", store, "--json").stdout)
    assert (status["state"], status["epoch"], status["error"]) == ("stopped", 2, None)
    assert status["lag_rows"] == {"generator-1": 0}
    assert len(json.loads(cli("snapshots", store, "--json").stdout)) == 3
    assert cli("verify", store).exit_code == 0

    again = cli("run", app, "--store", store, *limits)

    assert again.exit_code == 0, again.output
    assert "sums: nothing new to read; at epoch 2" in again.stderr


def test_run_json_is_lines_of_json(
    spark: SparkSession, cli: Any, write_app: Any, tmp_path: Path
) -> None:
    app = write_app()

    done = cli("run", f"{app}:build", "--store", tmp_path / "s", "--max-epochs", 1,
               "--max-rows-per-epoch", 30, "--json")  # fmt: skip

    assert done.exit_code == 0, done.output
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    # A start may warn of uids that nobody has given, before there is any status.
    events = list(itertools.dropwhile(lambda e: e["event"] == "warning", lines))
    assert events[0]["event"] == "status"
    assert (events[0]["epoch"], events[0]["rows"]) == (0, 30)
    assert events[-1]["event"] == "end"
    assert (events[-1]["epochs"], events[-1]["rows"]) == (1, 30)


def test_user_error_names_operator_key_and_line(
    spark: SparkSession, cli: Any, write_app: Any, tmp_path: Path
) -> None:
    app, store = write_app(bad=57), tmp_path / "store"
    limits = ("--available-now", "--max-rows-per-epoch", 40)

    done = cli("run", app, "--store", store, *limits)

    assert done.exit_code == 1
    assert "error: user code raised ValueError: odd record" in done.stderr
    assert "operator 'sums', on_event, key 2, epoch 1" in done.stderr
    assert 'cli_app.py:16 in on_event: raise ValueError("odd record")' in done.stderr
    assert "Traceback" not in done.stderr
    status = json.loads(cli("status", store, "--json").stdout)
    assert (status["state"], status["epoch"]) == ("failed", 0)
    assert "odd record" in status["error"]


def test_user_error_as_json(
    spark: SparkSession, cli: Any, write_app: Any, tmp_path: Path
) -> None:
    done = cli("run", write_app(bad=2), "--store", tmp_path / "s", "--available-now",
               "--json")  # fmt: skip

    last = json.loads(done.stdout.splitlines()[-1])
    assert (done.exit_code, last["error"]["code"]) == (1, "USER_CODE")
    assert last["error"]["values"]["operator"] == "sums"


@pytest.mark.parametrize(
    "words", [["--parallelism", "0"], ["--epoch-target", "soon"], ["--conf", "novalue"]]
)
def test_wrong_options_are_the_users_error(
    spark: SparkSession, cli: Any, write_app: Any, tmp_path: Path, words: list[str]
) -> None:
    done = cli("run", write_app(), "--store", tmp_path / "s", *words)

    assert done.exit_code == 1
    assert not (tmp_path / "s").exists()


def test_check_shows_operators_and_guarantees(
    spark: SparkSession, cli: Any, write_app: Any, tmp_path: Path
) -> None:
    app = write_app()

    found = json.loads(cli("check", app, "--json").stdout)
    shown = cli("check", app)

    assert found["operators"][0] == {
        "uid": "sums",
        "keys": "k bigint",
        "state": {"total": "bigint"},
        "parameters": [],
        "outputs": {"main": "k bigint, total bigint"},
    }
    assert found["sinks"][0]["guarantee"].startswith("exactly once")
    assert "flow sums can run" in shown.stdout
    assert not (tmp_path / "out").exists()


def test_check_passes_before_the_first_run_and_says_what_it_creates(
    spark: SparkSession, cli: Any, write_app: Any, tmp_path: Path
) -> None:
    app, store = write_app(), tmp_path / "store"
    url = f"sqlite:///{tmp_path}/new/shop.db"
    table = f"rl.sinks.sql({url!r}, table='sums', create=True)"
    more = f"    rows.write({table}, uid='table')\n    return flow\n"
    app.write_text(app.read_text().replace("    return flow\n", more))
    before = {p.name for p in tmp_path.iterdir()}

    done = cli("check", app, "--store", store, "--json")
    shown = cli("check", app, "--store", store)

    assert (done.exit_code, shown.exit_code) == (0, 0), shown.output
    created = [c["where"] for c in json.loads(done.stdout)["creates"]]
    assert created == [
        store.as_uri(),
        f"directory {tmp_path}/out",
        f"database {tmp_path}/new/shop.db",
        f"table sums of sqlite:///{tmp_path}/new/shop.db",
    ]
    assert "a start would create" in shown.stdout
    assert {p.name for p in tmp_path.iterdir()} - before <= {"__pycache__"}

    run = cli("run", app, "--store", store, "--available-now")
    again = cli("check", app, "--store", store, "--json")
    assert (run.exit_code, again.exit_code) == (0, 0), run.output
    assert json.loads(again.stdout)["creates"] == []


def test_check_says_which_sinks_can_be_reached(
    spark: SparkSession, cli: Any, write_app: Any
) -> None:
    app = write_app()
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # and does not listen
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        web = f"    rows.write(rl.sinks.http({url!r}), uid='web')\n    return flow\n"
        app.write_text(app.read_text().replace("    return flow\n", web))

        done = cli("check", app, "--json")
        shown = cli("check", app)

    found = {s["uid"]: s["reachable"] for s in json.loads(done.stdout)["sinks"]}
    assert found["web"] is False
    assert set(found.values()) == {False, None}
    assert done.exit_code == 5
    assert "cannot run yet" in shown.stdout
    assert "sink web: " in shown.stdout
    assert "cannot be reached" in shown.stdout


def _riverlock(*words: object, cwd: Path) -> subprocess.Popen[str]:
    code = "from riverlock.cli import main; main(prog_name='riverlock')"
    return subprocess.Popen(
        [sys.executable, "-c", code, *map(str, words)],
        cwd=cwd,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def _wait_for_epoch(cli: Any, store: Path, process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + 250
    while time.monotonic() < deadline and process.poll() is None:
        done = cli("status", store, "--json")
        if done.exit_code == 0 and json.loads(done.stdout)["epoch"] is not None:
            return
        time.sleep(0.5)
    process.kill()
    pytest.fail(process.communicate()[1])


def test_second_driver_is_fenced_and_ctrl_c_finishes_the_epoch(
    spark: SparkSession,
    cli: Any,
    write_app: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # However slowly the owner's heart beats here; a beat ends the wait.
    monkeypatch.setattr("riverlock.snapshot.claims._PATIENCE_SECONDS", 250)
    monkeypatch.setattr("riverlock.cli.status._STALLED_SECONDS", 250)
    app, store = write_app(rows="rows_per_second=100"), tmp_path / "store"
    first = _riverlock("run", app, "--store", store, cwd=tmp_path)
    try:
        _wait_for_epoch(cli, store, first)
        state = json.loads(cli("status", store, "--json").stdout)["state"]

        second = cli("run", app, "--store", store)

        assert state in ("running", "waiting")
        assert second.exit_code == 4
        assert f"process {first.pid}" in second.stderr
        assert first.poll() is None
    finally:
        first.send_signal(signal.SIGINT)
        out, err = first.communicate(timeout=250)
    assert first.returncode == 130, err
    assert out == ""
    assert "sums: stopped after" in err
    assert "Traceback" not in err
    assert json.loads(cli("status", store, "--json").stdout)["state"] == "stopped"
    assert cli("verify", store).exit_code == 0


SLOW_APP = """\
import pathlib, time
import riverlock as rl

here = pathlib.Path(__file__).parent
(here / "loading").touch()
while not (here / "go").exists():
    time.sleep(0.05)

flow = rl.Flow("slow")
flow.read(rl.sources.rate(1000)).write(rl.sinks.files(str(here / "out"), format="json"))
"""


def _wait_for(what: Callable[[], bool], *processes: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + 250
    while not what():
        ended = [p for p in processes if p.poll() is not None]
        if ended or time.monotonic() > deadline:
            pytest.fail(str([p.communicate() for p in ended]))
        time.sleep(0.1)


def test_a_flow_that_is_still_starting_is_stopped(cli: Any, tmp_path: Path) -> None:
    app, store = tmp_path / "slow_app.py", tmp_path / "store"
    app.write_text(SLOW_APP)
    requests = store / "regions/main/requests"
    run = _riverlock("run", app, "--store", store, cwd=tmp_path)
    try:
        _wait_for((tmp_path / "loading").exists, run)
        state = json.loads(cli("status", store, "--json").stdout)
        shown = cli("status", store)
        stop = _riverlock("stop", store, "--timeout", "4 minutes", cwd=tmp_path)
        _wait_for(lambda: requests.is_dir() and any(requests.iterdir()), run, stop)
        (tmp_path / "go").touch()
        _, err = run.communicate(timeout=250)
        out, _ = stop.communicate(timeout=250)
    finally:
        run.kill()

    assert (state["state"], state["pid"], state["run"]) == ("starting", run.pid, None)
    assert f"starting (process {run.pid}" in shown.stdout
    assert (run.returncode, stop.returncode) == (0, 0), err
    assert "run 1 has ended" in out
    found = json.loads(cli("status", store, "--json").stdout)
    assert (found["state"], found["epoch"]) == ("stopped", None)
    assert not list((tmp_path / "out").glob("epoch=*"))
    assert cli("verify", store).exit_code == 0


def test_new_project_runs_at_once(cli: Any, tmp_path: Path) -> None:
    assert cli("new", tmp_path / "shop").exit_code == 0

    process = _riverlock(
        "run", "app.py", "--store", "store", "--available-now", cwd=tmp_path / "shop"
    )
    _, err = process.communicate(timeout=500)

    assert process.returncode == 0, err
    assert "100,000 records" in err
    assert len(_output(tmp_path / "shop/out/big_spenders")) == 1000
