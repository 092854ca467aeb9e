"""Sessions by timer: a visit ends when its user has been quiet for half an hour.

python -m examples.sessions
riverlock run examples/sessions.py --store store/sessions --available-now
"""

import os
from datetime import datetime
from pathlib import Path
from typing import Any

import riverlock as rl

GAP = rl.minutes(30)


class Sessions(rl.Process):
    output = "user string, started timestamp, ended timestamp, clicks int"
    started = rl.Value("timestamp")
    last = rl.Value("timestamp")
    clicks = rl.Value("int", default=0)

    def on_event(self, click: Any, ctx: rl.Context) -> list[Any]:
        ended = []
        if self.last is not None:
            ctx.delete_timer(self.last + GAP)
            # The next visit may begin in the same epoch, before any timer fires.
            if click.at - self.last > GAP:
                ended = self._end(ctx)
        self.started = self.started or click.at
        self.last = click.at
        self.clicks += 1
        ctx.set_timer(click.at + GAP)
        return ended

    def on_timer(self, at: datetime, ctx: rl.Context) -> list[Any]:
        return self._end(ctx)

    def _end(self, ctx: rl.Context) -> list[Any]:
        row = (ctx.key, self.started, self.last, self.clicks)
        del self.started, self.last, self.clicks
        return [row]


# 20,000 clicks of 300 users, 10 seconds apart: a pause of half an hour is common.
CLICKS = {
    "user": "concat('user-', pmod(xxhash64(id, seed), 300))",
    "at": "timestamp_seconds(1767225600 + id * 10)",
}


def build(out: str, rows: int = 20_000) -> rl.Flow:
    flow = rl.Flow("sessions")
    clicks = flow.read(rl.sources.generator(CLICKS, rows=rows, seed=1), uid="clicks")
    clicks = clicks.event_time("at")
    visits = clicks.key_by("user").process(Sessions(), uid="sessions")
    visits.write(rl.sinks.files(out, format="json"), uid="visits")
    return flow


flow = build(os.environ.get("SESSIONS_OUT", str(Path("out/sessions").absolute())))


def main() -> None:
    status = flow.run("store/sessions", available_now=True)
    print(f"out/sessions holds the visits that ended up to epoch {status.epoch}")


if __name__ == "__main__":
    main()
