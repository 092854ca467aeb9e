"""The continuous engine without Spark: the same flows, oracles and stores; deaths."""

from __future__ import annotations

import itertools
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.conformance.engine_flows import CASES
from tests.conformance.test_engines import Trial, case_of
from tests.continuous_processes import Processes, Threads, run_continuously

import riverlock as rl
from riverlock.core import faults
from riverlock.core.errors import InvalidConfigError, UserCodeError
from riverlock.snapshot.catalog import Catalog
from riverlock.storage.open import open_storage
from riverlock.testing import rows

NAMES = [case.name for case in CASES]


def on(hosts: Any) -> dict[str, Any]:
    """Return what chooses the engine; ``hosts`` starts its tasks."""
    return {"run": partial(run_continuously, hosts=hosts)}


@pytest.mark.parametrize("name", NAMES)
def test_a_flow_gives_what_plain_python_gives(name: str, tmp_path: Path) -> None:
    """In several epochs, with a restart and another parallelism in the middle."""
    trial = Trial(case_of(name), tmp_path)

    trial.run(on(Threads()), max_epochs=2, parallelism=2)
    trial.run(on(Threads()), parallelism=3)

    trial.check()


@pytest.mark.parametrize("name", ["process", "windows", "broadcast", "chain"])
def test_engines_take_turns_on_one_store(name: str, tmp_path: Path) -> None:
    trial, newest = Trial(case_of(name), tmp_path), None
    for engine in itertools.cycle([on(Threads()), {"execution": "local"}]):
        status = trial.run(engine, max_epochs=2, parallelism=2)
        if status.epoch == newest:
            break
        newest = status.epoch

    trial.check()


def test_what_it_has_run_another_engine_replays(tmp_path: Path) -> None:
    trial = Trial(case_of("windows"), tmp_path)
    trial.run(on(Threads()), parallelism=3)
    newest = Catalog(open_storage(trial.store)).resolve(None).epoch

    found = trial.case.flow(trial.sink).replay(
        str(trial.store), 0, newest, execution="local"
    )

    assert found.matches
    assert len(found.epochs) == newest + 1


@pytest.mark.parametrize(
    "fault",
    [
        "P4=kill@4",
        pytest.param("P2=kill@3", marks=pytest.mark.slow),
        pytest.param("P5=kill@6", marks=pytest.mark.slow),
    ],
)
def test_a_task_is_killed_in_the_middle_of_an_epoch(
    fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Read by the processes of tasks; this one has been running without.
    monkeypatch.setenv(faults.PLAN_VARIABLE, fault)
    monkeypatch.setenv(faults.DIRECTORY_VARIABLE, str(tmp_path))
    trial, hosts = Trial(case_of("chain"), tmp_path), Processes()

    trial.run(on(hosts), parallelism=2)

    assert faults.fired(tmp_path)
    assert len(hosts.generations) == 2
    trial.check()


def test_tasks_end_with_the_run(tmp_path: Path) -> None:
    trial, hosts = Trial(case_of("stateless"), tmp_path), Processes()

    trial.run(on(hosts), parallelism=1)

    (running,) = hosts.generations
    assert [p.returncode for p in running.processes] == [0]


def test_an_error_of_user_code_names_the_record(tmp_path: Path) -> None:
    class Failing(rl.Process):
        output = "n long"

        def on_event(self, event: Any, ctx: Any) -> Any:
            if event.n == 9:
                raise ValueError("nine")
            yield (event.n,)

    flow = rl.Flow("failing", key_groups=4)
    source = flow.read(rows("n long", [(n,) for n in range(12)]), uid="in")
    source.key_by("n").process(Failing(), uid="failing").write(rl.sinks.memory())

    with pytest.raises(UserCodeError, match="nine") as caught:
        run_continuously(
            flow, str(tmp_path), hosts=Threads(), available_now=True, parallelism=2
        )

    assert caught.value.operator == "failing"
    assert caught.value.key == 9
    assert Path(__file__).name in caught.value.line
    assert Catalog(open_storage(tmp_path)).newest() is None


def test_a_run_without_enough_places_is_refused(tmp_path: Path) -> None:
    class Full(Threads):
        def refusal(self, tasks: int) -> Any:
            return InvalidConfigError("parallelism", expected="1", found=str(tasks))

    flow = rl.Flow("full", key_groups=4)
    flow.read(rows("n long", [(1,)]), uid="in").write(rl.sinks.memory())

    with pytest.raises(InvalidConfigError, match="parallelism"):
        run_continuously(
            flow, str(tmp_path), hosts=Full(), available_now=True, parallelism=2
        )

    assert Catalog(open_storage(tmp_path)).newest() is None
