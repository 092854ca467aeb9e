"""Sessions against a plain computation over all records."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from riverlock.core.times import END_US, from_micros, micros
from riverlock.core.types import Type, schema_of, type_of
from riverlock.operators.aggregates.partial import Merge, PartialAggregate
from riverlock.operators.aggregates.sketches import Percentiles
from riverlock.operators.sessions.session_windows import Sessions
from riverlock.operators.windows.window_contents import Aggregates
from riverlock.program.windows import SessionWindows
from riverlock.testing import harness
from riverlock.testing.harness import Harness

LONG, STRING = Type("long"), Type("string")
GAP, DELAY = 10, 15
MIDDLE = Percentiles(10, [0.25, 0.5], type_of("array<double>"))
AGGREGATES = {
    "n": PartialAggregate(
        type=LONG, merges=(Merge(columns={"n": LONG}, how="sum"),), result="count"
    ),
    "most": PartialAggregate(
        type=STRING, merges=(Merge(columns={"most": STRING}, how="max"),), result="same"
    ),
    "middle": PartialAggregate(
        type=MIDDLE.output,
        merges=(Merge(columns={"middle": MIDDLE.kept}, how=MIDDLE),),
        result=MIDDLE,
    ),
}
Record = tuple[str, int, str]
RECORDS = st.tuples(
    st.sampled_from("ab"),
    st.integers(0, 30).map(lambda n: n * 5) | st.integers(0, 150),
    st.sampled_from("pqr"),
)


def operator(lateness: int = 0) -> Harness:
    process = Sessions(Aggregates(AGGREGATES), SessionWindows(gap_us=GAP), lateness)
    columns = schema_of(
        "k string, at timestamp, n long, most string, middle array<double>"
    )
    bound = process.bound(schema_of("k string"), columns)
    return harness(bound, key="k", input=columns, event_time="at")


def rows(records: list[Record]) -> list[Any]:
    return [(k, from_micros(t), 1, v, [ord(v) * 1.0]) for k, t, v in records]


def shown(made: list[Any]) -> Counter[Any]:
    return Counter(
        (k, micros(b), micros(e), n, most, *map(chr, map(int, middle)))
        for k, b, e, n, most, middle in made
    )


def batch(records: list[Record]) -> Counter[Any]:
    by_key: dict[str, list[tuple[int, str]]] = defaultdict(list)
    for k, t, v in records:
        by_key[k].append((t, v))
    found: Counter[Any] = Counter()
    for k, mine in by_key.items():
        groups: list[list[tuple[int, str]]] = []
        for t, v in sorted(mine):
            if groups and t <= groups[-1][-1][0] + GAP:
                groups[-1].append((t, v))
            else:
                groups.append([(t, v)])
        for group in groups:
            ends = group[0][0], group[-1][0] + GAP
            values = sorted(v for _, v in group)
            middle = [values[-(-len(values) // part) - 1] for part in (4, 2)]
            found[k, *ends, len(group), values[-1], *middle] += 1
    return found


@given(st.lists(RECORDS, min_size=1, max_size=30), st.randoms(use_true_random=False))
def test_sessions_do_not_depend_on_splits_or_order(
    records: list[Record], chance: Any
) -> None:
    shuffled = sorted(records, key=lambda r: r[1] + chance.randint(0, DELAY))
    h = operator()
    at, newest = 0, -(1 << 60)
    while at < len(shuffled):
        part = shuffled[at : at + chance.randrange(1, 6)]
        at += len(part)
        with h.epoch():
            h.send(*rows(part))
        newest = max([newest, *(t for _, t, _ in part)])
        h.watermark = from_micros(newest - DELAY - 1)
    h.advance_watermark(from_micros(END_US))

    assert shown(h.output) == batch(records)
    for key in "ab":
        assert h.state("sessions", key=key) is None
        assert h.timers(key) == []


def test_late_records_extend_what_was_given_within_the_lateness() -> None:
    h = operator(lateness=20)
    h.send(*rows([("a", 0, "p"), ("a", 8, "q")]))
    h.advance_watermark(from_micros(18))
    assert shown(h.output) == Counter([("a", 0, 18, 2, "q", "p", "p")])

    # It is not over any more: it will be given again, whole.
    assert h.send(*rows([("a", 15, "r")])) == []
    h.advance_watermark(from_micros(25))
    assert shown(h.output) == Counter(
        [("a", 0, 18, 2, "q", "p", "p"), ("a", 0, 25, 3, "r", "p", "q")]
    )

    h.advance_watermark(from_micros(45))
    assert len(h.output) == 2
    assert h.state("sessions", key="a") is None


def test_a_record_can_join_two_sessions() -> None:
    h = operator()
    h.send(*rows([("a", 0, "p"), ("a", 18, "q")]))
    h.send(*rows([("a", 9, "r")]))

    h.advance_watermark(from_micros(100))

    assert shown(h.output) == Counter([("a", 0, 28, 3, "r", "p", "q")])
