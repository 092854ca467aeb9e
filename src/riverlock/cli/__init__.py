"""The command line: ``riverlock run app.py --store store``, ``riverlock status store``.

Commands, and what they need, are imported only when called: ``--help`` is instant, and
every command but ``run``, ``check`` and ``replay`` works without Spark.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any, Final

import click

from riverlock._version import __version__

__all__ = ["main"]

# name -> (module, attribute, line of the list)
_COMMANDS: Final = {
    "run": ("run", "run", "Run the flow in a file on a store."),
    "check": ("check", "check", "Check a flow without running it."),
    "graph": ("graph", "graph", "Draw a flow: text, Mermaid or SVG."),
    "status": ("status", "status", "Show how a flow is doing."),
    "state": ("state", "state", "Show the state of operators."),
    "sql": ("sql", "sql", "Query the state of operators with SQL."),
    "export": ("export", "export", "Write a snapshot as Parquet or Delta tables."),
    "snapshots": ("snapshots", "snapshots", "List the epochs that are kept."),
    "snapshot": (
        "snapshots",
        "snapshot",
        "Make or drop a savepoint: a named snapshot.",
    ),
    "expire": ("expire", "expire", "Delete old epochs: by number, age or bytes."),
    "restore": ("restore", "restore", "Go back to an epoch: state and inputs."),
    "fork": ("fork", "fork", "Make a new store that begins with an epoch."),
    "forks": ("fork", "forks", "List the forks that need files of a store."),
    "readers": ("readers", "readers", "List the flows that read from a store."),
    "diff": ("diff", "diff", "Show what differs between two epochs."),
    "changes": ("changes", "changes", "Show how state changed, epoch by epoch."),
    "explain": ("explain", "explain", "Show what led to an epoch or to a key's state."),
    "stop": ("stop", "stop", "Stop a running flow, wherever it runs."),
    "replay": ("replay", "replay", "Run epochs again and compare, or debug them."),
    "set": ("set", "set_parameters", "Show or change the parameters of a flow."),
    "rescale": ("rescale", "rescale", "Change the number of tasks of a running flow."),
    "verify": ("verify", "verify", "Check that all kept epochs are whole."),
    "repair": ("repair", "repair", "Go back to the newest whole epoch."),
    "new": ("new", "new", "Make a small project that is ready to run."),
    "doctor": ("doctor", "doctor", "Check that this machine can run flows."),
}


class _Commands(click.Group):
    """A group that knows its commands by name and imports one when it is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return None
        module, attribute, _ = _COMMANDS[cmd_name]
        found = getattr(import_module(f"riverlock.cli.{module}"), attribute)
        assert isinstance(found, click.Command)
        return found

    def format_commands(
        self, ctx: click.Context, formatter: click.HelpFormatter
    ) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(n, line) for n, (_, _, line) in _COMMANDS.items()])

    def main(self, *args: Any, standalone_mode: bool = True, **extra: Any) -> Any:
        """Run, and exit with our codes: a wrong option is the user's error, 1."""
        call: Any = super().main
        if not standalone_mode:
            return call(*args, standalone_mode=False, **extra)
        try:
            code = call(*args, standalone_mode=False, **extra)
        except click.ClickException as error:
            error.show()
            code = 1
        except click.Abort:
            click.echo("interrupted", err=True)
            code = 130
        sys.exit(code if isinstance(code, int) else 0)


_HELP: Final = """\
Reliable, stateful stream processing in Python, on Spark.

A store is a directory or an object-store address that holds a flow's epochs and state.

\b
Exit codes:
  0    success
  1    an error in your code, data or options
  2    a bug in riverlock
  3    a store or snapshot is damaged or missing
  4    another run owns the flow
  5    a sink did not commit
  130  interrupted by Ctrl-C, after finishing the epoch (SIGTERM: 0)

\b
Examples:
  riverlock new shop && cd shop
  riverlock run app.py --store store --available-now
  riverlock state store
"""


@click.group(
    cls=_Commands,
    help=_HELP,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 88},
)
@click.version_option(__version__, prog_name="riverlock")
def main() -> None:
    """Call a command; see ``riverlock --help``."""
