"""At the ends of the years that Python can name nothing fails, and nothing is lost."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from hypothesis import given, settings
from hypothesis import strategies as st

import riverlock as rl
from riverlock.core.times import from_micros, micros
from riverlock.testing import run_local

if TYPE_CHECKING:
    from collections.abc import Iterable

    from riverlock.testing.local import LocalRun

COLUMNS = "k string, n long, at timestamp"
HOUR = 3_600_000_000
START_US = micros(datetime.min.replace(tzinfo=UTC))
END_US = micros(datetime.max.replace(tzinfo=UTC))
Record = tuple[str, int, datetime | None]
# Around both ends, around 1970, and in between.
_MICROS = st.one_of(
    st.integers(0, 3 * HOUR).map(lambda us: START_US + us),
    st.integers(0, 3 * HOUR).map(lambda us: END_US - us),
    st.sampled_from([START_US, START_US + 1, END_US - 1, END_US, -1, 0, 1]),
    st.integers(START_US, END_US),
)
TIMES = st.none() | _MICROS.map(from_micros)
RECORDS = st.lists(st.tuples(st.sampled_from("ab"), TIMES), max_size=10).map(
    lambda drawn: [(k, n, at) for n, (k, at) in enumerate(drawn)]
)


def numbers(key: Any, window: Any, records: list[Any]) -> list[Any]:
    return [(key, [r.n for r in records])]


def renamed(record: Any) -> Any:
    return record.k, record.n, record.at


def numbered(record: Any) -> Any:
    return f"{record.k}{record.n}", record.n, record.at


class Alarms(rl.Process):
    """Gives each record when its time has come; what it remembers is forgotten."""

    output = "n long, watermark timestamp"
    waiting = rl.Map("timestamp", "array<bigint>")
    last = rl.Value("timestamp", ttl=timedelta(days=2_000_000))

    def on_event(self, record: Any, ctx: Any) -> Iterable[Any]:
        if record.at is None:
            yield record.n, ctx.watermark
            return
        self.last = record.at
        self.waiting[record.at] = [*self.waiting.get(record.at, ()), record.n]
        ctx.set_timer(record.at)
        assert record.at in ctx.timers()

    def on_timer(self, at: datetime, ctx: Any) -> Iterable[Any]:
        for n in self.waiting.pop(at):
            yield n, ctx.watermark


def every_operator(delay: str) -> rl.Flow:
    flow = rl.Flow("edges")
    source = rl.sources.files("in", format="json", schema=COLUMNS, bounded=True)
    rows = flow.read(source, uid="in").event_time("at", delay=delay)
    keyed = rows.key_by("k")
    other = rows.map(renamed, "k2 string, n2 long, at2 timestamp").key_by("k2")
    any_event = rl.pattern("e", lambda e: True).within("1 hour")
    pair = rl.pattern("a", lambda e: True).then("b", lambda e: True).within("1 hour")
    kinds: dict[str, Any] = {
        "tumbling": rl.tumbling("1 hour"),
        "sliding": rl.sliding("2 hours", "30 minutes"),
        "apart": rl.sliding("1 hour", "7 days"),
        "sessions": rl.sessions("90 minutes"),
    }
    columns = "k string, n array<bigint>"
    made = {
        "early": keyed.window(rl.tumbling("1 hour"), trigger=rl.early(count=2)).apply(
            numbers, columns, uid="early"
        ),
        "match": keyed.match(any_event, "n bigint", lambda m: (m["e"].n,), uid="match"),
        "pair": keyed.match(pair, "n bigint", lambda m: (m["b"].n,), uid="pair"),
        "within": keyed.join(other, within=("-1h", "1h"), how="full", uid="within"),
        "after": keyed.join(other, within=("1h", "2h"), how="left", uid="after"),
        "before": keyed.join(other, within=("-2h", "-1h"), how="left", uid="before"),
        "together": keyed.join(
            other, window=rl.tumbling("1 hour"), how="left", uid="together"
        ),
        "latest": keyed.join_latest(other, how="left", valid_for="1h", uid="latest"),
        "once": rows.map(numbered, COLUMNS).key_by("k").deduplicate("1h", uid="once"),
    }
    made |= {
        name: keyed.window(kind, lateness="1 hour").apply(numbers, columns, uid=name)
        for name, kind in kinds.items()
    }
    for uid, stream in made.items():
        stream.write(rl.sinks.memory(), uid=f"{uid}-out")
        stream.late.write(rl.sinks.memory(), uid=f"{uid}-late")
    keyed.process(Alarms(), uid="alarms").write(rl.sinks.memory(), uid="alarms-out")
    return flow


def of_windows(run: LocalRun, uid: str) -> set[int]:
    return {n for row in run.rows(f"{uid}-out") for n in row[1]}


def late(run: LocalRun, uid: str) -> Counter[int]:
    return Counter(n for _, n, _ in run.rows(f"{uid}-late"))


def late_lefts(run: LocalRun, uid: str) -> Counter[int]:
    rows = run.rows(f"{uid}-late")
    return Counter(left.n for side, _, left, _ in rows if side == "left")


@settings(max_examples=12)
@given(RECORDS, st.integers(1, 4), st.sampled_from(["0s", "5 minutes", "400 days"]))
def test_rows_in_are_rows_accounted_for(
    records: list[Record], size: int, delay: str
) -> None:
    run = run_local(every_operator(delay), {"in": records}, epoch_rows=size)

    every = Counter(n for _, n, _ in records)
    for uid in ("tumbling", "sliding", "sessions", "early"):
        assert Counter(of_windows(run, uid)) + late(run, uid) == every, uid
    # Records between windows that are apart are in none.
    assert not of_windows(run, "apart") & set(late(run, "apart"))
    for uid in ("match", "once"):
        place = 0 if uid == "match" else 1
        given_rows = Counter(row[place] for row in run.rows(f"{uid}-out"))
        assert given_rows + late(run, uid) == every, uid
    for uid in ("within", "after", "before", "together", "latest"):
        lefts = {row[1] for row in run.rows(f"{uid}-out")} - {None}
        assert Counter(lefts) + late_lefts(run, uid) == every, uid
    alarms = run.rows("alarms-out")
    assert Counter(n for n, _ in alarms) == every


def test_the_first_instant_there_is_holds_nothing_up() -> None:
    # Zero in Go; the delay before it has no name.
    zero = datetime(1, 1, 1, tzinfo=UTC)
    later = datetime(2026, 1, 1, tzinfo=UTC)
    records = [("a", 0, zero), ("a", 1, zero), ("a", 2, later), ("a", 3, later)]

    run = run_local(every_operator("5 minutes"), {"in": records}, epoch_rows=1)

    # The second record of the first instant is in time: nothing before it was over.
    assert late(run, "tumbling") == Counter()
    assert [n for n, _ in run.rows("alarms-out")] == [0, 1, 2, 3]
