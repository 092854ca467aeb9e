"""Flows whose tasks read and compute without Spark give what plain Python gives."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from tests.conformance.engine_flows import CASES, COLUMNS, EVENTS
from tests.conformance.test_engines import NAMES, Trial
from tests.shares_engine import run_by_shares

import riverlock as rl
from riverlock.core.errors import InvalidFlowError
from riverlock.testing import rows

pytestmark = pytest.mark.spark


@pytest.mark.parametrize("name", NAMES)
def test_a_flow_of_shares_gives_what_plain_python_gives(
    name: str, spark: Any, tmp_path: Path
) -> None:
    """In several epochs, with a restart and another parallelism in the middle."""
    trial = Trial(next(c for c in CASES if c.name == name), tmp_path)
    engine = {"run": run_by_shares, "spark": spark}

    trial.run(engine, max_epochs=2, parallelism=2)
    trial.run(engine, parallelism=3)

    trial.check()


def expressions(sink: Any) -> rl.Flow:
    """A flow of expressions: steps, gaps, aggregates with and without windows."""
    flow = rl.Flow("expressions", key_groups=8)
    source = flow.read(rows(COLUMNS, EVENTS, bounded=True), uid="main")
    kept = source.where("n % 3 != 0").with_column("m", "n * 2").where("m > 2")
    named = kept.select("coalesce(upper(k), 'NONE') AS k", "m", "n / 2 AS half", "at")
    named.write(sink("named"), uid="named")
    sums = named.key_by("k").agg(
        total="sum(m)", rows="count(*)", high="max(m)", mean="avg(half)"
    )
    sums.write(sink("sums"), uid="sums")
    timed = named.event_time("at", delay="5 seconds", uid="times")
    panes = timed.key_by("k").window(rl.tumbling("10 seconds"))
    panes.agg(
        total="sum(m)", rows="count(*)", first="first(m)", all="collect_list(m)"
    ).write(sink("panes"), uid="panes")
    return flow


def test_expressions_give_what_the_jobs_engine_gives(
    spark: Any, tmp_path: Path
) -> None:
    def written(name: str, run: Any) -> dict[str, Counter[str]]:
        folder = tmp_path / name
        flow = expressions(lambda uid: rl.sinks.files(str(folder / uid), format="json"))
        run(
            flow,
            str(folder / "store"),
            spark=spark,
            available_now=True,
            epoch_target=None,
            max_rows_per_epoch=5,
            parallelism=2,
        )
        files = {
            uid: sorted((folder / uid).glob("epoch=*/*.json"))
            for uid in ("named", "sums", "panes")
        }
        return {
            uid: Counter(line for f in found for line in f.read_text().splitlines())
            for uid, found in files.items()
        }

    there, here = written("jobs", rl.Flow.run), written("shares", run_by_shares)

    assert all(there.values())
    assert here == there


@pytest.mark.parametrize(
    ("what", "step"),
    [
        ("md5", lambda s: s.with_column("h", "md5(k)")),
        ("where", lambda s: s.where("sha2(k, 256) > 'a'")),
        ("transform", lambda s: s.transform(lambda f: f.orderBy("n"))),
    ],
)
def test_what_cannot_be_compiled_is_refused_by_name(
    what: str, step: Any, spark: Any, tmp_path: Path
) -> None:
    flow = rl.Flow("refused")
    step(flow.read(rows(COLUMNS, EVENTS), uid="in")).write(rl.sinks.memory(), uid="out")

    with pytest.raises(InvalidFlowError, match=what) as caught:
        run_by_shares(flow, str(tmp_path / "store"), spark=spark, available_now=True)

    assert "execution='jobs'" in caught.value.hint
