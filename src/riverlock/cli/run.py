"""``riverlock run``."""

from __future__ import annotations

import contextlib
import logging
import signal
import socket
import threading
from typing import TYPE_CHECKING, Any

import click

from riverlock.cli import text
from riverlock.cli.app import find_flow, load, parse, worker_path
from riverlock.cli.command import command
from riverlock.cli.progress import Progress, progress
from riverlock.snapshot.verbs.cut import DEFAULT_PROTOCOL, PROTOCOLS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from riverlock.cli.app import App
    from riverlock.flow.flow import Flow
    from riverlock.snapshot.catalog import Catalog

__all__ = ["continuous_option", "open_app", "run", "session_options"]

_INTERRUPTED = 130


def _pairs(
    ctx: click.Context, param: click.Parameter, given: tuple[str, ...]
) -> dict[str, str]:
    for text_ in given:
        if "=" not in text_:
            raise click.BadParameter(f"expected NAME=VALUE, found {text_!r}")
    return dict(text_.split("=", 1) for text_ in given)


def _parallelism(given: str) -> int | str:
    return int(given) if given.isdecimal() else given


def continuous_option(body: Any) -> Any:
    """Add the option that chooses tasks that stay."""
    return click.option(
        "--continuous",
        is_flag=True,
        help="Spark tasks that stay from epoch to epoch, instead of a job per stage.",
    )(body)


def session_options(body: Any) -> Any:
    """Add the options that say which Spark to use."""
    body = click.option(
        "--conf",
        metavar="NAME=VALUE",
        multiple=True,
        callback=_pairs,
        help="A Spark setting; may be repeated.",
    )(body)
    return click.option(
        "--master", help="Spark's master; default: all cores of this machine."
    )(body)


@command("run")
@click.argument("app", metavar="APP.py[:FLOW]", type=click.Path())
@click.option(
    "--store", required=True, help="The store that holds the flow's epochs and state."
)
@click.option(
    "--region", help="Run this region alone; others may run in other processes."
)
@click.option("--available-now", is_flag=True, help="Process what is there, then stop.")
@continuous_option
@click.option(
    "--parallelism",
    metavar="N|auto",
    type=_parallelism,
    help="Tasks per keyed stage; default: the number of cores.",
)
@click.option(
    "--max-rows-per-epoch", type=int, help="The most records an epoch may take."
)
@click.option("--epoch-target", help="How long an epoch should take; default 1 second.")
@click.option("--max-epochs", type=int, help="Stop after this many epochs.")
@click.option(
    "--snapshots-every",
    metavar="AGE",
    help="Take a snapshot of all regions this often: 1m, 1h; named auto-000001 ...",
)
@click.option(
    "--snapshots-keep", type=int, help="How many of these are kept; default 10."
)
@click.option(
    "--protocol",
    type=click.Choice(PROTOCOLS),
    help=f"How several regions agree on a snapshot; default: {DEFAULT_PROTOCOL}.",
)
@session_options
def run(  # noqa: PLR0913 - the options of the command
    *,
    app: str,
    store: str,
    region: str | None,
    master: str | None,
    conf: dict[str, str],
    continuous: bool,
    as_json: bool,
    **options: Any,
) -> int:
    r"""Run the flow in a file on a store, until its input ends or you press Ctrl-C.

    FLOW is the name of a flow in the file, or of a function that returns one; leave it
    out if there is only one. The file is loaded like a module: code under `if __name__
    == "__main__":` is not run. Ctrl-C finishes the epoch in progress, a second Ctrl-C
    drops it; either way nothing is lost.

    Progress goes to standard error; with --json one line per epoch goes to standard
    output.

    \b
    Examples:
      riverlock run app.py --store store --available-now
      riverlock run app.py:shop --store s3://bucket/shop --region billing
    """
    from riverlock.snapshot.starts import announced

    target = parse(app)
    with progress(as_json=as_json) as shown, _log_to(shown), _interrupts() as seen:
        shown.say("starting Spark")
        catalog = _catalog(store)
        catalog = catalog if region is None else catalog.of(region)
        with announced(catalog, now_us=text.now_us()):
            flow = open_app(target, master=master, conf=conf)
            options["region"] = region
            options["execution"] = "continuous" if continuous else None
            chosen = {k: v for k, v in options.items() if v is not None}
            shown.begin(flow.name, newest=max(catalog.epochs(), default=None))
            shown.is_stopping = lambda: bool(seen())
            flow.run(store, on_status=shown.update, **chosen)
        signals = set(seen())
    shown.end(text.now_us(), interrupted=bool(signals), store=store)
    return exit_code(signals)


def exit_code(signals: set[int]) -> int:
    """Return the exit code of a run that ended well, by the stop signals it got.

    A supervisor that sends SIGTERM gets what it asked for: the epoch was finished, and
    a new run starts where this one ended. Ctrl-C is for shells, which expect 130.
    """
    return _INTERRUPTED if signal.SIGINT in signals else 0


def _catalog(store: str) -> Catalog:
    from riverlock.snapshot.catalog import Catalog
    from riverlock.storage.open import open_storage

    return Catalog(open_storage(store))


def open_app(app: App, *, master: str | None, conf: dict[str, str]) -> Flow:
    """Start Spark, so that the file may use it at module level, and load the flow.

    Raises:
        RiverlockError: Spark cannot start, or the file has no usable flow.
    """
    from riverlock.spark.session import local_session
    from riverlock.spark.user_modules import send_by_value

    with worker_path(app.folder):
        local_session(f"riverlock {app.file.name}", master=master, conf=conf)
    module = load(app)
    flow = find_flow(module, app.name)
    send_by_value(module, app.folder)
    return flow


@contextlib.contextmanager
def _log_to(shown: Progress) -> Iterator[None]:
    """Show warnings of the library above the progress line."""

    class _Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            shown.warn(record.getMessage().partition("\n")[0])

    log, handler = logging.getLogger("riverlock"), _Handler(logging.WARNING)
    log.addHandler(handler)
    try:
        yield
    finally:
        log.removeHandler(handler)


@contextlib.contextmanager
def _interrupts() -> Iterator[Any]:
    """Return a function that tells which stop signals came, whoever handles them."""
    numbers: set[int] = set()
    if threading.current_thread() is not threading.main_thread():
        yield lambda: numbers
        return
    ours, theirs = socket.socketpair()
    ours.settimeout(0)
    theirs.settimeout(0)
    before = signal.set_wakeup_fd(theirs.fileno(), warn_on_full_buffer=False)

    def seen() -> set[int]:
        with contextlib.suppress(OSError):  # nothing more, or closed by now
            while received := ours.recv(64):
                numbers.update({*received} & {signal.SIGINT, signal.SIGTERM})
        return numbers

    try:
        yield seen
    finally:
        signal.set_wakeup_fd(before)
        ours.close()
        theirs.close()
