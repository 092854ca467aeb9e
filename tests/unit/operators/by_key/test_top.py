from __future__ import annotations

import math
from typing import Any

import pytest

import riverlock as rl
from riverlock.core.errors import InvalidFlowError
from riverlock.core.types import schema_of
from riverlock.operators.by_key.top import Ranking, Top
from riverlock.testing import run_local
from riverlock.testing.harness import Harness, harness

COLUMNS = "shop string, n long, amount double"
KEYS = schema_of("shop string")


def make(n: int = 2, by: str = "amount", **options: Any) -> Harness:
    options = {"descending": True, **options}
    columns = schema_of(options.pop("input", COLUMNS))
    process = Top(Ranking(n, by, descending=options.pop("descending"))).bound(
        KEYS, columns
    )
    return harness(process, key="shop", input=columns, **options)


def test_top_gives_the_ranks_that_an_epoch_changed_once() -> None:
    h = make()

    assert h.send(("s", 1, 5.0), ("s", 2, 7.0), ("t", 3, 1.0)) == [
        ("s", 2, 7.0, 1),
        ("s", 1, 5.0, 2),
        ("t", 3, 1.0, 1),
    ]
    assert h.send(("s", 4, 6.0)) == [("s", 4, 6.0, 2)]
    assert h.send(("s", 5, 6.0), ("s", 6, 1.0)) == []
    assert h.send(("s", 7, 9.0)) == [("s", 7, 9.0, 1), ("s", 2, 7.0, 2)]


def test_top_leaves_out_ranks_that_have_the_same_record_again() -> None:
    h = make(3)
    h.send(("s", 1, 9.0), ("s", 2, 8.0))

    assert h.send(("s", 3, 1.0)) == [("s", 3, 1.0, 3)]


def test_top_keeps_at_most_n_records() -> None:
    h = make(2)
    h.send(*(("s", n, float(n)) for n in range(50)))

    assert [r.n for r in h.state("ranking", key="s")] == [49, 48]


def test_top_prefers_the_earlier_of_equal_records() -> None:
    h = make(2, by="amount")
    h.send(("s", 1, 5.0))
    h.send(("s", 2, 5.0), ("s", 3, 5.0))

    assert [r.n for r in h.state("ranking", key="s")] == [1, 2]


@pytest.mark.parametrize(
    ("descending", "expected"), [(True, [3, 2, 1, 4]), (False, [1, 2, 3, 4])]
)
def test_top_takes_nan_for_the_greatest_and_null_for_the_worst(
    descending: bool, expected: list[int]
) -> None:
    h = make(4, descending=descending)

    rows = h.send(("s", 4, None), ("s", 3, math.nan), ("s", 1, -1.0), ("s", 2, 0.0))

    assert [n for _, n, _, _ in rows] == expected
    assert [rank for *_, rank in rows] == [1, 2, 3, 4]


def test_top_keeps_columns_whose_names_are_no_attributes() -> None:
    h = make(
        1,
        by="as_dict",
        input="shop string, as_dict string, `odd name` struct<`class`:array<int>>",
    )

    h.send(("s", "a", {"class": [1]}))
    h.send(("s", "b", {"class": [2, None]}))

    ((_, best, nested, rank),) = h.output[-1:]
    assert (best, rank) == ("b", 1)
    assert nested == h.state("ranking", key="s")[0].c2_


def test_top_survives_a_restart() -> None:
    h = make()
    h.send(("s", 1, 5.0), ("s", 2, 7.0))

    again = h.restart(h.snapshot())

    assert again.send(("s", 3, 6.0)) == [("s", 3, 6.0, 2)]


def test_top_runs_in_one_thread_by_keys_in_any_order() -> None:
    flow = rl.Flow("shops")
    source = rl.sources.files("in", format="json", schema=COLUMNS)
    best = flow.read(source, uid="in").key_by("n", "shop").top(1, by="amount", uid="t")
    best.write(rl.sinks.memory())
    flow.read(source, uid="more").key_by("n", "shop").count(uid="c").write(
        rl.sinks.memory(), uid="counts"
    )

    run = run_local(flow, {"in": [("s", 1, 2.0)], "more": [("s", 1, 2.0)]})

    assert run.rows("memory-1") == [("s", 1, 2.0, 1)]
    assert run.rows("counts") == [(1, "s", 1)]


@pytest.mark.parametrize(
    ("schema", "arguments", "expected"),
    [
        (COLUMNS, (0, "amount"), "a whole number of at least 1"),
        (COLUMNS, (True, "amount"), "a whole number of at least 1"),
        (COLUMNS, ("3", "amount"), "a whole number of at least 1"),
        (COLUMNS, (3, "amout"), "one of the columns shop, n, amount"),
        ("shop string, x array<int>", (3, "x"), "a column of numbers"),
        ("shop string, rank int", (3, "rank"), "no column 'rank'"),
    ],
)
def test_top_refuses_what_cannot_be_ranked(
    schema: str, arguments: Any, expected: str
) -> None:
    flow = rl.Flow("shops")
    source = rl.sources.files("in", format="json", schema=schema)

    with pytest.raises(InvalidFlowError) as caught:
        flow.read(source).key_by("shop").top(*arguments)

    assert expected in caught.value.expected
