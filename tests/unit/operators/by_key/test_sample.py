from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.snapshot.killing import killed_at
from tests.unit.snapshot.local_flow import LocalFlow, source
from tests.unit.snapshot.timed_flow import EVERY

import riverlock as rl
from riverlock.core.errors import InvalidFlowError
from riverlock.core.types import schema_of
from riverlock.operators.by_key.sample import Sample
from riverlock.testing import run_local
from riverlock.testing.harness import Harness, harness

COLUMNS = schema_of("shop string, n long")
KEYS = schema_of("shop string")


def make(n: int = 2, **options: Any) -> Harness:
    return harness(Sample(n).bound(KEYS, COLUMNS), key="shop", input=COLUMNS, **options)


def test_sample_takes_all_records_while_there_are_places() -> None:
    h = make(3)

    assert h.send(("s", 1), ("s", 2), ("t", 3)) == [
        ("s", 1, 1),
        ("s", 2, 2),
        ("t", 3, 1),
    ]
    assert h.send(("s", 4)) == [("s", 4, 3)]
    assert h.state("seen", key="s") == 3


def test_sample_emits_a_place_once_per_epoch_with_its_last_record() -> None:
    h = make(2)

    rows = h.send(*(("s", n) for n in range(200)))

    kept = [r.n for r in h.state("reservoir", key="s")]
    assert rows == [("s", kept[0], 1), ("s", kept[1], 2)]
    assert h.state("seen", key="s") == 200
    assert max(kept) > 1  # later records have replaced the first two


@given(
    st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 99)), max_size=60),
    st.integers(1, 4),
    st.integers(1, 20),
)
def test_upserts_by_key_and_place_are_the_sample(
    records: list[tuple[str, int]], n: int, epoch_rows: int
) -> None:
    flow = rl.Flow("shops")
    sample = (
        flow.read(source(COLUMNS.ddl), uid="in").key_by("shop").sample(n, uid="some")
    )
    sample.write(rl.sinks.memory(), uid="out")

    run = run_local(flow, records, epoch_rows=epoch_rows)

    table = {(shop, place): value for shop, value, place in run.rows()}
    for shop in {shop for shop, _ in records}:
        mine = Counter(value for key, value in records if key == shop)
        found = [table[shop, p + 1] for p in range(min(n, mine.total()))]
        assert not Counter(found) - mine, "a record that the key has not had"
        state = run.operator("some").state("reservoir", key=shop)
        assert [r.n for r in state] == found
        assert run.operator("some").state("seen", key=shop) == mine.total()
    assert len(table) == sum(
        min(n, sum(key == shop for key, _ in records))
        for shop in {shop for shop, _ in records}
    )


def test_every_record_is_as_likely_as_any_other() -> None:
    """Against plain Python: 3 of 10 records, over 4,000 keys in two epochs."""
    h = make(3)
    keys = [f"key {number}" for number in range(4_000)]
    h.send(*((key, n) for key in keys for n in range(6)))
    h.send(*((key, n) for key in keys for n in range(6, 10)))

    found = Counter(r.n for key in keys for r in h.state("reservoir", key=key))

    chance = Random(5)
    plain = Counter(n for _ in keys for n in chance.sample(range(10), 3))
    assert found.total() == plain.total() == 12_000
    # The standard deviation of a count is 29: five of them are never reached.
    assert all(abs(found[n] - 1_200) < 145 for n in range(10)), found
    assert all(abs(plain[n] - 1_200) < 145 for n in range(10)), plain


def test_a_restart_in_between_chooses_the_same() -> None:
    first, second = make(2), make(2)
    records = [("s", n) for n in range(40)]
    first.send(*records)
    second.send(*records)

    again = second.restart(second.snapshot())

    assert again.send(*records) == first.send(*records)
    kept = [[r.n for r in h.state("reservoir", key="s")] for h in (again, first)]
    assert kept[0] == kept[1]


class SampledFlow(LocalFlow):
    def build(self) -> rl.Flow:
        flow = rl.Flow("sampled", key_groups=8)
        rows = flow.read(source("k string, v long"), uid="rows")
        rows.key_by("k").sample(3, uid="some").write(
            rl.sinks.files(str(self.out), format="json"), uid="out"
        )
        return flow


# Before the votes, before and after the decision, before and after the commit.
@pytest.mark.parametrize("point", ["P3", "P6", "P7", "P8", "P10", "P11"])
def test_a_driver_that_is_killed_leaves_one_sample(tmp_path: Path, point: str) -> None:
    rows = [("ab"[number % 2], number) for number in range(60)]
    flow = SampledFlow(tmp_path / "store", rows, tmp_path / "out")
    flow.run(2, epoch_rows=5, retention=EVERY)

    def dies() -> None:
        flow.run(epoch_rows=5, retention=EVERY)

    assert killed_at(point, dies, count=3)
    newest = flow.run(epoch_rows=5, retention=EVERY)

    shown: dict[tuple[str, int], int] = {}
    for file in sorted(flow.out.glob("epoch=*/*")):
        for line in file.read_text().splitlines():
            row = json.loads(line)
            shown[row["k"], row["place"]] = row["v"]
    state = rl.open(str(flow.store)).state("some", "reservoir").to_arrow().to_pylist()
    assert len(state) == 2
    assert shown == {
        (row["k"], place + 1): record["v"]
        for row in state
        for place, record in enumerate(row["reservoir"])
    }
    assert flow.replay(1, newest).matches


@pytest.mark.parametrize("n", [0, -1, 1.5, True, "3"])
def test_sample_needs_a_number(n: Any) -> None:
    with pytest.raises(InvalidFlowError, match="whole number"):
        Sample(n)


def test_sample_needs_a_name_for_places() -> None:
    rows = rl.Flow("f").read(source("k string, place int"))

    with pytest.raises(InvalidFlowError, match="no column 'place'"):
        rows.key_by("k").sample(2)
