"""The continuous engine on Spark: tasks of a barrier stage that stays."""

from __future__ import annotations

import itertools
import os
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from tests.conformance.test_engines import Trial, case_of

import riverlock as rl
from riverlock.cli import main
from riverlock.core.errors import InvalidConfigError, InvalidFlowError
from riverlock.snapshot.catalog import Catalog
from riverlock.storage.open import open_storage
from riverlock.testing import rows

pytestmark = pytest.mark.spark


@pytest.mark.parametrize("name", ["broadcast", "chain"])
def test_engines_take_turns_on_one_store(name: str, spark: Any, tmp_path: Path) -> None:
    trial, newest = Trial(case_of(name), tmp_path), None
    ways = [{"execution": "continuous", "spark": spark}, {"execution": "local"}]
    for engine in itertools.cycle(ways):
        status = trial.run(engine, max_epochs=3, parallelism=2)
        if status.epoch == newest:
            break
        newest = status.epoch

    trial.check()


class Summed(rl.Process):
    output = "k string, total long"
    total = rl.Value("long", default=0)

    def __init__(self, mark: str) -> None:
        self.mark = mark

    def on_event(self, event: Any, ctx: Any) -> Any:
        self.total += event.m
        if event.m == 24 and not Path(self.mark).exists():
            Path(self.mark).touch()
            os.kill(os.getpid(), signal.SIGKILL)
        yield ctx.key, self.total


def test_a_worker_is_killed_in_the_middle_of_an_epoch(
    spark: Any, tmp_path: Path
) -> None:
    given = [(k, n) for n in range(40) for k in ("a", "b", "c")]
    out, mark = rl.sinks.memory(), tmp_path / "killed"
    flow = rl.Flow("killed", key_groups=8)
    stream = flow.read(rows("k string, n long", given), uid="in")
    doubled = stream.where("n % 2 = 0").with_column("m", "n * 2")
    summed = doubled.key_by("k").process(Summed(str(mark)), uid="summed")
    summed.write(out, uid="out")

    flow.run(
        str(tmp_path / "store"),
        execution="continuous",
        spark=spark,
        parallelism=2,
        available_now=True,
        epoch_target=None,
        max_rows_per_epoch=15,
    )

    assert mark.exists()
    sums, expected = Counter[str](), Counter[Any]()
    for k, n in given:
        if n % 2 == 0:
            sums[k] += 2 * n
            expected[k, sums[k]] += 1
    assert Counter(out.rows()) == expected


def test_more_tasks_than_cores_are_refused(spark: Any, tmp_path: Path) -> None:
    flow = rl.Flow("wide")
    flow.read(rows("n long", [(1,)]), uid="in").write(rl.sinks.memory())

    with pytest.raises(InvalidConfigError, match="at most 2") as caught:
        flow.run(
            str(tmp_path),
            execution="continuous",
            spark=spark,
            parallelism=3,
            available_now=True,
        )

    assert "execution='jobs'" in caught.value.hint
    assert Catalog(open_storage(tmp_path)).newest() is None


def test_a_check_says_what_cannot_run_so(spark: Any, tmp_path: Path) -> None:
    app = tmp_path / "app.py"
    app.write_text(
        "import riverlock as rl\n"
        "from riverlock.testing import rows\n"
        "def plain():\n"
        "    flow = rl.Flow('plain')\n"
        "    stream = flow.read(rows('n long', [(1,)]), uid='in').where('n > 0')\n"
        "    stream.write(rl.sinks.console())\n"
        "    return flow\n"
        "def frames():\n"
        "    flow = rl.Flow('frames')\n"
        "    stream = flow.read(rows('n long', [(1,)]), uid='in')\n"
        "    stream.transform(lambda f: f.limit(3)).write(rl.sinks.console())\n"
        "    return flow\n"
    )

    fits = CliRunner().invoke(main, ["check", f"{app}:plain", "--continuous"])
    refused = CliRunner().invoke(main, ["check", f"{app}:frames", "--continuous"])
    with_jobs = CliRunner().invoke(main, ["check", f"{app}:frames"])

    assert (fits.exit_code, with_jobs.exit_code) == (0, 0), fits.output
    assert refused.exit_code != 0
    assert "transform" in refused.output + refused.stderr
    assert "execution='jobs'" in refused.output + refused.stderr


def test_what_needs_spark_in_every_epoch_is_refused_by_name(
    spark: Any, tmp_path: Path
) -> None:
    flow = rl.Flow("refused")
    stream = flow.read(rows("n long", [(1,)]), uid="in")
    stream.write(rl.sinks.for_each_epoch(lambda frame, epoch: None), uid="each")

    with pytest.raises(InvalidFlowError, match="each") as caught:
        flow.run(str(tmp_path), execution="continuous", spark=spark, available_now=True)

    assert "execution='jobs'" in caught.value.hint
