"""What all commands share: ``--json``, ``--debug``, errors as exit codes."""

from __future__ import annotations

import functools
import select
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from riverlock.core.errors import InvalidConfigError, RiverlockError
from riverlock.core.suggestions import did_you_mean

if TYPE_CHECKING:
    from riverlock.snapshot.catalog import Catalog
    from riverlock.snapshot.format.records import Start

__all__ = [
    "command",
    "known_region",
    "open_catalog",
    "open_starting",
    "store_argument",
]

Body = Callable[..., int | None]


def command(name: str) -> Callable[[Body], click.Command]:
    """Make a command of a function; what it returns is the exit code.

    The function gets ``as_json``. Errors show a traceback only with ``--debug``.
    """

    def wrap(body: Body) -> click.Command:
        @functools.wraps(body)
        def guarded(*, debug: bool, **options: Any) -> None:
            ctx = click.get_current_context()
            ctx.exit(_guard(body, options, debug=debug) or 0)

        guarded = click.option(
            "--debug", is_flag=True, help="Show the traceback of an error."
        )(guarded)
        guarded = click.option("--json", "as_json", is_flag=True, help="Print JSON.")(
            guarded
        )
        # Raw docstrings: click wants the mark of text to keep as a real backspace.
        help_text = (body.__doc__ or "").replace("\\b", "\b")
        return click.command(name, help=help_text)(guarded)

    return wrap


def _guard(body: Body, options: dict[str, Any], *, debug: bool) -> int | None:
    try:
        return body(**options)
    except (click.ClickException, click.Abort, click.exceptions.Exit):
        raise
    except RiverlockError as error:
        caught: Exception = error
    except BrokenPipeError as error:
        if _nobody_reads():
            raise  # as in `riverlock state store | head`: click ends without a word
        caught = error
    except Exception as error:  # noqa: BLE001 - the last frame before the user
        caught = error
    from riverlock.cli.error_text import report

    return report(caught, as_json=options["as_json"], debug=debug)


def _nobody_reads() -> bool:
    """Tell whether our own output is broken, and not another connection."""
    output = select.poll()
    output.register(1, 0)
    return any(event & (select.POLLERR | select.POLLHUP) for _, event in output.poll(0))


store_argument = click.argument(
    "store", metavar="STORE", type=click.Path(file_okay=False)
)


def open_starting(store: str) -> tuple[Catalog, list[Start]]:
    """Open a store that its first start need not have created yet.

    Returns:
        The store, and the starts in progress.

    Raises:
        SnapshotNotFoundError: There is neither a store nor a start.
    """
    from riverlock.cli.text import now_us
    from riverlock.snapshot.catalog import Catalog
    from riverlock.snapshot.starts import starts
    from riverlock.storage.open import open_storage

    catalog = Catalog(open_storage(store))
    found = starts(catalog, now_us=now_us())
    return (catalog, found) if found else (open_catalog(store), [])


def known_region(region: str, known: list[str]) -> str:
    """Return the name of a region that a store has.

    Raises:
        InvalidConfigError: It has no such region.
    """
    if region not in known:
        raise InvalidConfigError(
            "--region",
            expected=f"one of {', '.join(known)}",
            found=region,
            hint=did_you_mean(region, known),
        )
    return region


def open_catalog(store: str) -> Catalog:
    """Open a store that exists.

    Raises:
        SnapshotNotFoundError: There is none.
        InvalidConfigError: The address also names an epoch.
    """
    from riverlock.snapshot.address import open_store

    return open_store(store)
