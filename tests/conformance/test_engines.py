"""Every engine runs the same flows with the same result, on the same stores."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import functions as F
from tests.conformance.engine_flows import CASES, COLUMNS, DEAD, EVENTS, Case

import riverlock as rl
from riverlock.connectors.generator.reader import GeneratorReader
from riverlock.connectors.generator.source_numbers import NumbersReader
from riverlock.core.errors import InvalidFlowError, UserCodeError
from riverlock.core.hidden_columns import SEQ
from riverlock.snapshot.catalog import Catalog
from riverlock.snapshot.format.records import Change
from riverlock.snapshot.format.requests import add_request
from riverlock.snapshot.state_reader import read_entries
from riverlock.storage.open import open_storage
from riverlock.testing import ManualClock, rows

ENGINES = [
    pytest.param("local", id="local"),
    pytest.param("jobs", id="jobs", marks=pytest.mark.spark),
]
NAMES = [case.name for case in CASES]


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest) -> dict[str, Any]:
    """Options of ``flow.run`` that choose an engine."""
    if request.param == "local":
        return {"execution": "local"}
    return {"execution": "jobs", "spark": request.getfixturevalue("spark")}


class Trial:
    """A case on a store; sinks are directories, which outlive every run."""

    def __init__(self, case: Case, folder: Path) -> None:
        self.case, self.folder = case, folder
        self.store = folder / "store"

    def sink(self, uid: str) -> Any:
        return rl.sinks.files(str(self.folder / uid), format="json")

    def run(self, engine: dict[str, Any], **options: Any) -> rl.Status:
        DEAD.update({uid: self.sink(f"dead-{uid}") for uid in ("halved", "sums")})
        sources = len(self.case.inputs)
        wanted: dict[str, Any] = {
            "available_now": True,
            "epoch_target": None,
            # Shared by the sources that have rows.
            "max_rows_per_epoch": self.case.epoch_rows * sources,
            **engine,
            **options,
        }
        flow, run = self.case.flow(self.sink), wanted.pop("run", rl.Flow.run)
        found: rl.Status = run(flow, str(self.store), **wanted)
        return found

    def written(self, uid: str) -> Counter[Any]:
        files = sorted((self.folder / uid).glob("epoch=*/*.json"))
        lines = [x for file in files for x in file.read_text().splitlines()]
        return Counter(tuple(json.loads(line).values()) for line in lines)

    def check(self) -> None:
        expected = self.case.expected(self.case.epochs)
        for uid, wanted in expected.items():
            dead = self.folder / f"dead-{uid}"
            if dead.exists():
                found = self.written(f"dead-{uid}")
                letters = Counter((row[0], row[3]) for row in found.elements())
                assert letters == wanted, uid
            else:
                assert self.written(uid) == as_json(wanted), uid
        for uid, values in self.case.state(self.case.epochs).items():
            assert state_of(self.store, uid) == values, uid


def as_json(found: Counter[Any]) -> Counter[Any]:
    """Return rows as files of JSON have them."""

    def plain(value: Any) -> Any:
        if isinstance(value, datetime):
            return value.isoformat().replace("+00:00", "Z")
        return value

    return Counter(tuple(map(plain, row)) for row in found.elements())


def state_of(store: Path, operator: str) -> dict[Any, Any]:
    """Return the first value of each key, as the files of the newest epoch say."""
    storage = open_storage(store)
    manifest = Catalog(storage).resolve(None)
    state = manifest.operators[operator]
    entries = read_entries(storage, state, now_us=manifest.now_us)
    assert entries is not None
    return {
        next(iter(row["key"].values())): next(iter(row["data"].values()))
        for row in entries.to_pylist()
        if row["entry"] == "values"
    }


def case_of(name: str) -> Case:
    return next(case for case in CASES if case.name == name)


@pytest.mark.parametrize("name", NAMES)
def test_a_flow_gives_what_plain_python_gives(
    name: str, engine: dict[str, Any], tmp_path: Path
) -> None:
    """In several epochs, with a restart and another parallelism in the middle."""
    trial = Trial(case_of(name), tmp_path)

    trial.run(engine, max_epochs=2, parallelism=2)
    trial.run(engine, parallelism=3)

    trial.check()


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("parallelism", [1, 5])
def test_a_restart_after_every_epoch_changes_nothing(
    name: str, parallelism: int, tmp_path: Path
) -> None:
    trial, newest = Trial(case_of(name), tmp_path), None
    while True:
        status = trial.run(
            {"execution": "local"}, max_epochs=1, parallelism=parallelism
        )
        if status.epoch == newest:
            break
        newest = status.epoch

    trial.check()


@pytest.mark.spark
@pytest.mark.parametrize("name", ["process", "windows", "broadcast", "chain"])
def test_engines_take_turns_on_one_store(name: str, spark: Any, tmp_path: Path) -> None:
    trial, newest = Trial(case_of(name), tmp_path), None
    jobs = {"execution": "jobs", "spark": spark}
    for engine in itertools.cycle([{"execution": "local"}, jobs]):
        status = trial.run(engine, max_epochs=2, parallelism=2)
        if status.epoch == newest:
            break
        newest = status.epoch

    trial.check()


class Priced(rl.Process):
    output = "k string, n long"
    factor = rl.Param(1)

    def on_event(self, event: Any, ctx: Any) -> Any:
        yield ctx.key, event.n * self.factor


def test_parameters_hold_from_one_epoch_on(
    engine: dict[str, Any], tmp_path: Path
) -> None:
    out = rl.sinks.memory()
    flow = rl.Flow("priced", key_groups=4)
    source = flow.read(rows(COLUMNS, EVENTS), uid="in")
    source.key_by("k").process(Priced(), uid="priced").write(out, uid="out")
    options: dict[str, Any] = {
        "available_now": True,
        "max_rows_per_epoch": 5,
        "epoch_target": None,
        **engine,
    }

    flow.run(str(tmp_path), max_epochs=2, **options)
    change = Change(values={"priced": {"factor": 3}})
    add_request(Catalog(open_storage(tmp_path)), change, now_us=1)
    flow.run(str(tmp_path), **options)

    expected = [
        (k, n * (1 if place < 10 else 3)) for place, (k, n, _) in enumerate(EVENTS)
    ]
    assert Counter(out.rows()) == Counter(expected)


class Failing(rl.Process):
    output = "k string"

    def on_event(self, event: Any, ctx: Any) -> Any:
        if event.n == 9:
            raise ValueError("nine")
        yield (ctx.key,)


def test_an_error_of_user_code_names_the_record(
    engine: dict[str, Any], tmp_path: Path
) -> None:
    flow = rl.Flow("failing", key_groups=4)
    source = flow.read(rows(COLUMNS, EVENTS), uid="in")
    source.key_by("k").process(Failing(), uid="failing").write(rl.sinks.memory())

    with pytest.raises(UserCodeError, match="nine") as caught:
        flow.run(str(tmp_path), available_now=True, **engine)

    assert caught.value.operator == "failing"
    assert caught.value.key == "ü"
    assert Path(__file__).name in caught.value.line
    assert Catalog(open_storage(tmp_path)).newest() is None


def test_an_error_of_a_function_names_the_record(
    engine: dict[str, Any], tmp_path: Path
) -> None:
    def refuse(record: Any) -> Any:
        if record.n == 9:
            raise KeyError("nothing")
        return (record.k,)

    flow = rl.Flow("failing", key_groups=4)
    mapped = flow.read(rows(COLUMNS, EVENTS), uid="in").map(refuse, "k string", uid="m")
    mapped.write(rl.sinks.memory())

    with pytest.raises(UserCodeError, match="nothing") as caught:
        flow.run(str(tmp_path), available_now=True, **engine)

    assert caught.value.operator == "m"
    assert "k='ü', n=9" in str(caught.value.record)


def test_the_local_engine_replays_what_it_has_run(tmp_path: Path) -> None:
    trial = Trial(case_of("windows"), tmp_path)
    trial.run({"execution": "local"}, parallelism=3)
    newest = Catalog(open_storage(trial.store)).resolve(None).epoch

    found = trial.case.flow(trial.sink).replay(
        str(trial.store), 0, newest, execution="local"
    )

    assert found.matches
    assert len(found.epochs) == newest + 1
    assert sum(epoch.rows for epoch in found.epochs) > len(EVENTS)


@pytest.mark.spark
def test_what_one_engine_has_run_another_replays(spark: Any, tmp_path: Path) -> None:
    trial = Trial(case_of("process"), tmp_path)
    trial.run({"execution": "local"}, parallelism=2)
    DEAD.update({uid: trial.sink(f"dead-{uid}") for uid in ("halved", "sums")})
    newest = Catalog(open_storage(trial.store)).resolve(None).epoch

    found = trial.case.flow(trial.sink).replay(str(trial.store), 0, newest, spark=spark)

    assert found.matches
    assert len(found.epochs) == newest + 1


@pytest.mark.spark
@pytest.mark.parametrize("pace", [1, 3, 7.5, 1_000, 999_983])
def test_rows_made_from_their_number_are_the_same(spark: Any, pace: float) -> None:
    source = rl.sources.generator(
        {"number": "id", "at": "created", "s": "seed"}, rows_per_second=pace, seed=7
    )
    start = {"row": 90, "origin_us": 1_767_225_600_123_457}
    end = {**start, "row": 123}

    here = NumbersReader(source, ManualClock()).read(start, end)
    there = GeneratorReader(spark, source, ManualClock()).read(start, end)

    found = there.drop(SEQ).withColumn("at", F.unix_micros("at")).collect()
    mine = here.set_column(1, "at", here["at"].cast("int64"))
    assert sorted(map(tuple, found)) == [tuple(r.values()) for r in mine.to_pylist()]


@pytest.mark.parametrize(
    ("what", "build"),
    [
        ("step 'where'", lambda s: s.where("n > 3")),
        ("aggregate 'total'", lambda s: s.key_by("k").agg(total="sum(n)", uid="a")),
        ("step 'with_column'", lambda s: s.with_column("m", "n + 1")),
    ],
)
def test_what_only_spark_can_run_is_refused_by_name(
    what: str, build: Any, tmp_path: Path
) -> None:
    flow = rl.Flow("refused")
    build(flow.read(rows(COLUMNS, EVENTS), uid="in")).write(rl.sinks.memory())

    with pytest.raises(InvalidFlowError, match=what) as caught:
        flow.run(str(tmp_path), execution="local", available_now=True)

    assert "execution='local'" in caught.value.hint
    assert not list(tmp_path.iterdir())


def test_the_local_engine_loads_no_pyspark() -> None:
    import subprocess
    import sys

    code = (
        "import sys, tempfile, riverlock as rl\n"
        "from riverlock.testing import rows\n"
        "class Seen(rl.Process):\n"
        "    output = 'n long'\n"
        "    times = rl.Value('long', default=0)\n"
        "    def on_event(self, event, ctx):\n"
        "        self.times += 1\n"
        "        yield (self.times,)\n"
        "out, flow = rl.sinks.memory(), rl.Flow('bare')\n"
        "stream = flow.read(rows('n long', [(1,)]), uid='in')\n"
        "stream.key_by('n').process(Seen(), uid='seen').write(out)\n"
        "with tempfile.TemporaryDirectory() as store:\n"
        "    flow.run(store, execution='local', available_now=True)\n"
        "assert out.rows(), 'nothing came out'\n"
        "print([m for m in sys.modules if m.split('.')[0] in ('pyspark', 'py4j')])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    assert (done.stdout.strip(), done.returncode) == ("[]", 0), done.stderr
