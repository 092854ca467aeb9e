from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from riverlock.core import faults
from riverlock.core.faults import Action, Fault, InjectedFault, Injector


def run_child(code: str, plan: str, directory: Path | None) -> subprocess.Popen[str]:
    env = {**os.environ, faults.PLAN_VARIABLE: plan}
    env.pop(faults.DIRECTORY_VARIABLE, None)
    if directory is not None:
        env[faults.DIRECTORY_VARIABLE] = str(directory)
    program = f"from riverlock.core import faults\n{code}"
    return subprocess.Popen(
        [sys.executable, "-c", program],
        env=env,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def finish(child: subprocess.Popen[str]) -> tuple[int, str, str]:
    out, err = child.communicate(timeout=200)
    return child.returncode, out, err


def wait_for(path: Path, seconds: float = 200.0) -> None:
    deadline = time.monotonic() + seconds
    while not path.exists():
        assert time.monotonic() < deadline, f"{path.name} did not appear"
        time.sleep(0.01)


def test_parse_reads_points_actions_and_counts() -> None:
    plan = faults.parse("P8=kill@3; P3=sleep:2.5@1;")

    assert plan == (
        Fault(point="P8", action=Action.KILL, at=3),
        Fault(point="P3", action=Action.SLEEP, at=1, seconds=2.5),
    )


@pytest.mark.parametrize(
    "plan", ["P8", "P8=kill", "P8=kill@0", "P99=kill@1", "P8=explode@1", "P8=kill@-1"]
)
def test_parse_refuses_a_plan_that_would_test_nothing(plan: str) -> None:
    with pytest.raises(ValueError, match=r"fault|fail point|Action"):
        faults.parse(plan)


def test_registry_names_every_point_of_the_protocol() -> None:
    expected = {f"P{n}" for n in range(1, 13)} | {f"R{n}" for n in range(1, 5)}

    assert set(faults.POINTS) == expected


def test_hit_is_a_no_op_without_a_plan() -> None:
    assert not faults.active()

    faults.hit("P1")
    faults.hit("no such point")


def test_hit_of_an_unknown_point_raises_when_faults_are_active() -> None:
    injector = Injector(plan=faults.parse("P1=raise@1"))

    with pytest.raises(ValueError, match="P77"):
        injector.hit("P77")


def test_raise_acts_at_its_count_only() -> None:
    injector = Injector(plan=faults.parse("P5=raise@2"))

    injector.hit("P5")
    with pytest.raises(InjectedFault):
        injector.hit("P5")
    injector.hit("P5")


def test_one_point_may_fail_several_times() -> None:
    injector = Injector(plan=faults.parse("P3=enospc@1;P3=eio@2"))

    with pytest.raises(OSError) as full:
        injector.hit("P3")
    with pytest.raises(OSError) as broken:
        injector.hit("P3")

    assert (full.value.errno, broken.value.errno) == (errno.ENOSPC, errno.EIO)


def test_kill_ends_the_process_by_signal_and_leaves_proof(tmp_path: Path) -> None:
    child = run_child(
        "for _ in range(9): faults.hit('P8'); print('hit', flush=True)",
        "P8=kill@3",
        tmp_path,
    )

    status, out, _ = finish(child)

    assert status == -signal.SIGKILL
    assert out.count("hit") == 2
    assert faults.fired(tmp_path) == ["P8-3"]


def test_exit_ends_the_process_without_clean_up(tmp_path: Path) -> None:
    child = run_child(
        "import atexit; atexit.register(print, 'cleaned'); faults.hit('P2')",
        "P2=exit@1",
        tmp_path,
    )

    status, out, _ = finish(child)

    assert (status, out) == (faults.EXIT_STATUS, "")


def test_count_goes_on_across_restarts(tmp_path: Path) -> None:
    statuses = []
    for _ in range(3):
        child = run_child(
            "faults.hit('P1'); faults.hit('P1')", "P1=exit@2;P1=exit@3", tmp_path
        )
        statuses.append(finish(child)[0])

    assert statuses == [faults.EXIT_STATUS, faults.EXIT_STATUS, 0]
    assert faults.fired(tmp_path) == ["P1-2", "P1-3"]


def test_count_is_shared_by_processes_that_run_at_once(tmp_path: Path) -> None:
    code = "for _ in range(50): faults.hit('P2')"

    children = [run_child(code, "P2=exit@120", tmp_path) for _ in range(4)]
    statuses = [finish(child)[0] for child in children]

    assert sorted(statuses) == [0, 0, 0, faults.EXIT_STATUS]
    assert faults.fired(tmp_path) == ["P2-120"]


def test_stop_holds_the_process_until_continued(tmp_path: Path) -> None:
    child = run_child("faults.hit('P6'); print('went on')", "P6=stop@1", tmp_path)

    _, wait_status = os.waitpid(child.pid, os.WUNTRACED)
    assert os.WIFSTOPPED(wait_status)
    os.kill(child.pid, signal.SIGCONT)

    assert finish(child)[:2] == (0, "went on\n")


def test_pause_waits_for_the_resume_file(tmp_path: Path) -> None:
    child = run_child("faults.hit('P7'); print('went on')", "P7=pause@1", tmp_path)

    wait_for(tmp_path / "fired-P7-1")
    assert child.poll() is None
    (tmp_path / "resume-P7").touch()

    assert finish(child)[:2] == (0, "went on\n")


def test_sleep_delays_the_process() -> None:
    injector = Injector(plan=faults.parse("P3=sleep:0.05@1"))

    begun = time.monotonic()
    injector.hit("P3")

    assert time.monotonic() - begun >= 0.05


def test_malformed_plan_stops_the_process_at_import() -> None:
    status, _, err = finish(run_child("print('ran')", "P8=kill", None))

    assert status == 1
    assert "P8=kill" in err
