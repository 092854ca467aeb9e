from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import riverlock as rl
from riverlock.core.errors import InvalidConfigError, InvalidFlowError
from riverlock.operators.joins.interval_join import IntervalJoin
from riverlock.operators.joins.keyed_join import Join, LatestJoin, Lookup
from riverlock.testing import harness, run_local

T = datetime(2024, 1, 1, tzinfo=UTC)
ORDERS = "user string, n bigint, at timestamp"
RATES = "rate double, account string, since timestamp"


def at(minutes: float) -> datetime:
    return T + timedelta(minutes=minutes)


def make(process: Join) -> Any:
    return harness(
        process,
        key="user",
        input=ORDERS,
        event_time="at",
        right=RATES,
        right_key="account",
        right_event_time="since",
    )


def interval(how: str = "inner") -> Any:
    return make(IntervalJoin(how, ("account",), ("-5 minutes", "10 minutes")))


def test_interval_join_gives_pairs_when_the_second_record_comes() -> None:
    h = interval()

    assert h.send(("ann", 1, at(0))) == []
    assert h.send_right((1.5, "ann", at(10)), (1.6, "ann", at(10.1))) == [
        ("ann", 1, at(0), 1.5, at(10))
    ]
    assert h.send(("ann", 2, at(15.1)), ("bob", 3, at(10))) == [
        ("ann", 2, at(15.1), 1.6, at(10.1))
    ]


@pytest.mark.parametrize(
    ("how", "rows"),
    [
        ("inner", []),
        ("left", [("ann", 1, at(0), None, None)]),
        ("right", [("ann", None, None, 1.5, at(11))]),
        (
            "full",
            [("ann", 1, at(0), None, None), ("ann", None, None, 1.5, at(11))],
        ),
        ("semi", []),
        ("anti", [("ann", 1, at(0))]),
    ],
)
def test_interval_join_gives_rows_without_partner_when_none_can_come(
    how: str, rows: list[Any]
) -> None:
    h = interval(how)
    h.send(("ann", 1, at(0)))
    h.send_right((1.5, "ann", at(11)))

    h.advance_watermark(at(9.9))
    assert h.output == []
    h.advance_watermark(at(10))
    assert h.output == [r for r in rows if r[1] == 1]
    h.advance_watermark(at(16))
    assert h.output == rows
    assert h.keys() == []


def test_interval_join_reads_only_the_rows_that_match() -> None:
    h = interval()
    h.send(*[("ann", n, at(n)) for n in range(100)])

    parts = h.state("left_times", key="ann")

    # Half of fifteen minutes: at most eight of these times.
    assert max(map(len, parts.values())) == 8
    assert sum(map(len, parts.values())) == 100


@pytest.mark.parametrize("process", [IntervalJoin, LatestJoin])
def test_records_that_are_late_or_have_no_time_go_to_the_side_output(
    process: Any,
) -> None:
    bounds = (("0s", "1s"),) if process is IntervalJoin else ()
    h = make(process("left", ("account",), *bounds))
    h.advance_watermark(at(10))

    h.send(("ann", 1, at(10)), ("ann", 2, None), (None, 3, at(9)))
    h.send_right((1.5, "ann", at(9)))

    lefts = [
        (when, row.user, row.n, row.at)
        for side, when, row, other in h.side("late")
        if side == "left" and other is None
    ]
    assert sorted(lefts, key=lambda row: row[2]) == [
        (at(10), "ann", 1, at(10)),
        (None, "ann", 2, None),
        (at(9), None, 3, at(9)),
    ]
    ((when, row),) = [(t, y) for s, t, x, y in h.side("late") if x is None]
    assert (when, row.rate, row.account, row.since) == (at(9), 1.5, "ann", at(9))
    assert h.late_rows == 4
    assert h.output == []
    assert h.keys() == []


def test_latest_join_waits_for_the_watermark_and_forgets_old_versions() -> None:
    h = make(LatestJoin("left", ("account",)))

    h.send(("ann", 1, at(5)), ("ann", 2, at(1)))
    h.send_right((3.0, "ann", at(6)), (2.0, "ann", at(4)), (1.0, "ann", at(2)))
    assert h.output == []
    h.advance_watermark(at(5))

    assert h.output == [("ann", 2, at(1), None, None), ("ann", 1, at(5), 2.0, at(4))]
    assert h.state("current", key="ann").rate == 2.0
    assert [r.rate for r in h.state("coming", key="ann").values()] == [3.0]
    assert h.state("waiting", key="ann") == {}


def test_lookup_answers_at_once() -> None:
    h = make(Lookup("left", ("account",)))

    h.send(("ann", 1, at(0)))
    h.send_right((1.0, "ann", at(0)), (2.0, "ann", None), (3.0, None, None))
    h.send(("ann", 2, at(0)), (None, 3, at(0)))

    assert sorted(h.output, key=lambda r: r[1]) == [
        ("ann", 1, at(0), None, None),
        ("ann", 2, at(0), 2.0, None),
        (None, 3, at(0), None, None),
    ]


def source(schema: str) -> Any:
    return rl.sources.files("nowhere", format="json", schema=schema)


def streams(flow: rl.Flow | None = None) -> tuple[Any, Any]:
    flow = flow or rl.Flow("joins")
    return (
        flow.read(source(ORDERS), uid="orders"),
        flow.read(source(RATES), uid="rates"),
    )


def test_lookup_forgets_what_is_older_than_its_ttl() -> None:
    h = make(Lookup("left", ("account",), rl.minutes(10)))
    h.send_right((1.5, "ann", at(0)))
    h.advance_clock("9 minutes")
    assert [row[3] for row in h.send(("ann", 1, at(0)))] == [1.5]

    h.advance_clock("2 minutes")

    assert [row[3] for row in h.send(("ann", 2, at(0)))] == [None]
    assert h.state("latest", key="ann") is None


@pytest.mark.parametrize("option", [{"valid_for": "0s"}, {"valid_for": "soon"}])
def test_latest_join_refuses_no_duration(option: Any) -> None:
    orders, rates = streams()
    left = orders.event_time("at").key_by("user")
    right = rates.event_time("since").key_by("account")

    with pytest.raises(InvalidFlowError, match="valid_for"):
        left.join_latest(right, **option)
    with pytest.raises(InvalidFlowError, match="ttl of lookup"):
        left.lookup(right, ttl="0s")


def test_joins_run_without_spark() -> None:
    flow = rl.Flow("joins")
    orders, rates = streams(flow)
    left = orders.event_time("at").key_by("user")
    right = rates.event_time("since").key_by("account")
    joined = left.join(right, within=("-5m", "10m"), how="left", uid="join")
    joined.write(rl.sinks.memory(), uid="out")
    joined.late.write(rl.sinks.memory(), uid="late")
    left.join_latest(right, uid="latest").write(rl.sinks.memory(), uid="as-of")
    left.lookup(right, uid="lookup").write(rl.sinks.memory(), uid="now")

    run = run_local(
        flow,
        {
            "orders": [("ann", 1, at(0)), ("ann", 2, at(20)), ("ann", 3, at(1))],
            "rates": [(1.0, "ann", at(0)), (2.0, "ann", at(20)), (3.0, "ann", at(40))],
        },
        epoch_rows=1,
    )

    assert run.rows("out") == [
        ("ann", 1, at(0), 1.0, at(0)),
        ("ann", 2, at(20), 2.0, at(20)),
    ]
    assert [row.n for _, _, row, _ in run.rows("late")] == [3]
    # Until 20 more may come: the watermark is right before it.
    assert run.rows("as-of") == run.rows("out")[:1]
    assert [(r[1], r[3]) for r in run.rows("now")] == [(1, 1.0), (2, 2.0), (3, 3.0)]


@pytest.mark.parametrize(
    "within",
    ["5 minutes", ("5 minutes",), ("10 minutes", "-5 minutes"), (0, 5)],
)
def test_bounds_are_a_pair_in_order(within: Any) -> None:
    orders, rates = streams()
    left = orders.event_time("at").key_by("user")
    right = rates.event_time("since").key_by("account")

    with pytest.raises(InvalidFlowError, match="a lower and an upper bound"):
        left.join(right, within=within)
    with pytest.raises(InvalidConfigError, match="duration"):
        left.join(right, within=("soon", "later"))


def test_kinds_of_joins_are_checked() -> None:
    orders, rates = streams()
    left = orders.event_time("at").key_by("user")
    right = rates.event_time("since").key_by("account")

    with pytest.raises(InvalidFlowError, match="inner or left or right or full"):
        left.join(right, within=("0s", "1s"), how="outer")
    with pytest.raises(InvalidFlowError, match="inner or left"):
        left.join_latest(right, how="full")
    with pytest.raises(InvalidFlowError, match="inner or left"):
        left.lookup(right, how="right")


def test_joins_by_event_time_need_it_on_both_sides() -> None:
    orders, rates = streams()
    left = orders.event_time("at").key_by("user")

    with pytest.raises(InvalidFlowError) as caught:
        left.join(rates.key_by("account"), within=("0s", "1s"))
    assert "right side of join" in str(caught.value)
    assert "event_time" in caught.value.hint
    with pytest.raises(InvalidFlowError, match="left side of join_latest"):
        orders.key_by("user").join_latest(left)
    left.lookup(rates.key_by("account"))  # does not


def test_names_that_both_sides_have_are_refused() -> None:
    with pytest.raises(InvalidFlowError, match="at on both sides"):
        harness(Lookup("inner", ("user",)), key="user", input=ORDERS, right=ORDERS)
