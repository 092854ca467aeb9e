from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

import riverlock as rl
from riverlock.core.errors import InvalidConfigError, InvalidFlowError, UserCodeError
from riverlock.flow.inside import program_of
from riverlock.testing import harness, run_local

T = datetime(2024, 1, 1, tzinfo=UTC)
ORDERS = "user string, amount double, at timestamp"
PROFILES = "name string, city string, since timestamp"


class Match(rl.TwoInputProcess):
    """Remembers the city, counts orders, and says what it saw in which order."""

    output = "user string, said string"
    unknown = rl.SideOutput("user string, amount double")
    city = rl.Value("string")
    orders = rl.Value("int", default=0)

    def on_left(self, order: Any, ctx: Any) -> Iterator[Any]:
        self.orders += 1
        if self.city is None:
            ctx.emit(self.unknown, (order.user, order.amount))
        ctx.set_timer(order.at + rl.hours(1))
        yield ctx.key, f"order {order.amount} in {self.city} at {ctx.time:%H:%M}"

    def on_right(self, profile: Any, ctx: Any) -> list[Any]:
        self.city = profile["city"]
        return [(profile.name, f"moved to {profile.city} at {ctx.time:%H:%M}")]

    def on_timer(self, at: datetime, ctx: Any) -> Iterator[Any]:
        yield ctx.key, f"{self.orders} orders at {at:%H:%M}"


def make(**options: Any) -> Any:
    return harness(
        Match(),
        key="user",
        input=ORDERS,
        event_time="at",
        right=PROFILES,
        right_key="name",
        right_event_time="since",
        **options,
    )


def test_both_sides_see_the_same_state_timers_and_outputs() -> None:
    h = make()

    h.send(("ann", 1.0, T))
    h.send_right({"name": "ann", "city": "Rome", "since": T + rl.minutes(5)})
    h.send(("ann", 2.0, T + rl.minutes(10)), ("bob", 3.0, T))
    h.advance_watermark(T + rl.hours(1))

    assert [r for r in h.output if r[0] == "ann"] == [
        ("ann", "order 1.0 in None at 00:00"),
        ("ann", "moved to Rome at 00:05"),
        ("ann", "order 2.0 in Rome at 00:10"),
        ("ann", "2 orders at 01:00"),
    ]
    assert h.side("unknown") == [("ann", 1.0), ("bob", 3.0)]
    assert h.state("city", key="ann") == "Rome"


def test_in_an_epoch_the_right_side_comes_first_each_side_in_its_order() -> None:
    h = make()

    with h.epoch():
        h.send(("ann", 1.0, T), ("ann", 2.0, T))
        h.send_right(("ann", "Rome", T), ("ann", "Oslo", T))

    assert [said for _, said in h.output] == [
        "moved to Rome at 00:00",
        "moved to Oslo at 00:00",
        "order 1.0 in Oslo at 00:00",
        "order 2.0 in Oslo at 00:00",
    ]


def test_sides_with_the_same_columns_are_told_apart() -> None:
    class Sides(rl.TwoInputProcess):
        output = "k string, side string"

        def on_left(self, record: Any, ctx: Any) -> list[Any]:
            return [(record.k, "left")]

        def on_right(self, record: Any, ctx: Any) -> list[Any]:
            return [(record.k, "right")]

    h = harness(Sides(), key="k", input="k string", right="k string")
    with h.epoch():
        h.send(("a",), ("b",))
        h.send_right(("b",), ("c",))

    assert sorted(h.output) == [
        ("a", "left"),
        ("b", "left"),
        ("b", "right"),
        ("c", "right"),
    ]


def test_poison_of_either_side_goes_to_the_dead_letters() -> None:
    h = make(on_error="dead_letter")

    with h.epoch():
        h.send(("ann", 1.0, None), ("ann", 2.0, T))
        h.send_right(("ann", "Rome", None))

    assert [d["record"] for d in h.dead_letters] == [
        "Record(name='ann', city='Rome', since=None)",
        "Record(user='ann', amount=1.0, at=None)",
    ]
    assert h.output == [("ann", "order 2.0 in None at 00:00")]


def test_errors_name_the_record_of_the_side() -> None:
    with pytest.raises(UserCodeError, match="city='Rome'"):
        make().send_right(("ann", "Rome", None))


def test_harness_of_one_input_has_no_right_side() -> None:
    class One(rl.Process):
        def on_event(self, record: Any, ctx: Any) -> None: ...

    with pytest.raises(InvalidConfigError, match="right=columns"):
        harness(One(), key="k", input="k string").send_right(("a",))


def source(schema: str) -> Any:
    return rl.sources.files("nowhere", format="json", schema=schema)


def streams(
    left: str = ORDERS, right: str = PROFILES, flow: rl.Flow | None = None
) -> tuple[Any, Any]:
    flow = flow or rl.Flow("two")
    orders = flow.read(source(left), uid="orders").event_time("at", delay="1 minute")
    profiles = flow.read(source(right), uid="profiles").event_time("since")
    return orders, profiles


def test_flow_of_two_inputs_runs_without_spark() -> None:
    flow = rl.Flow("two")
    orders, profiles = streams(flow=flow)
    done = orders.key_by("user").connect(profiles.key_by("name"))
    done.process(Match(), uid="match").write(rl.sinks.memory(), uid="out")
    later = T + rl.hours(2)
    inputs: dict[str, list[Any]] = {
        "orders": [("ann", 1.0, T), ("bob", 2.0, later), ("bob", 3.0, later)],
        "profiles": [("ann", "Rome", T), ("cid", "Oslo", T + rl.minutes(90))],
    }

    run = run_local(flow, inputs, epoch_rows=1)

    assert sorted(run.rows("out")) == [
        # The watermark is that of the side that is behind: right before 01:30.
        ("ann", "1 orders at 01:00"),
        ("ann", "moved to Rome at 00:00"),
        ("ann", "order 1.0 in Rome at 00:00"),
        ("bob", "order 2.0 in None at 02:00"),
        ("bob", "order 3.0 in None at 02:00"),
        ("cid", "moved to Oslo at 01:30"),
    ]
    moment = rl.seconds(1e-6)
    assert run.operator("match").watermark == T + rl.minutes(90) - moment


def test_graph_shows_both_inputs() -> None:
    orders, profiles = streams()
    orders.key_by("user").connect(profiles.key_by("name")).process(Match(), uid="m")

    nodes = program_of(orders).describe()

    (connect,) = [n for n in nodes if n["kind"] == "connect"]
    assert [nodes[i]["kind"] for i in connect["inputs"]] == ["eventtime", "eventtime"]


def test_keys_must_have_equal_types() -> None:
    orders, profiles = streams(right="name bigint, city string, since timestamp")

    with pytest.raises(InvalidFlowError) as caught:
        orders.key_by("user").connect(profiles.key_by("name"))
    assert caught.value.found == "bigint"
    with pytest.raises(InvalidFlowError, match="equal types"):
        orders.key_by("user").connect(profiles.key_by("name", "city"))


@pytest.mark.parametrize("other", ["profiles", None, 3])
def test_other_side_must_be_a_keyed_stream(other: Any) -> None:
    orders, profiles = streams()

    with pytest.raises(InvalidFlowError, match="key it by"):
        orders.key_by("user").connect(profiles if other == "profiles" else other)


def test_other_side_must_be_of_the_same_flow() -> None:
    orders, _ = streams()
    _, profiles = streams()

    with pytest.raises(InvalidFlowError, match="same flow"):
        orders.key_by("user").connect(profiles.key_by("name"))


def test_processes_of_one_input_and_of_two_are_not_confused() -> None:
    class One(rl.Process):
        def on_event(self, record: Any, ctx: Any) -> None: ...

    class Half(rl.TwoInputProcess):
        def on_left(self, record: Any, ctx: Any) -> None: ...

    orders, profiles = streams()
    both = orders.key_by("user").connect(profiles.key_by("name"))

    with pytest.raises(InvalidFlowError, match=r"left\.connect"):
        orders.key_by("user").process(Match())
    with pytest.raises(InvalidFlowError, match="a TwoInputProcess"):
        both.process(One())
    with pytest.raises(InvalidFlowError, match="a method on_right"):
        both.process(Half())
    with pytest.raises(InvalidFlowError, match="write Match"):
        both.process(Match)
