"""``riverlock graph``."""

from __future__ import annotations

import click

from riverlock.cli import text
from riverlock.cli.app import find_flow, load, parse
from riverlock.cli.command import command

__all__ = ["graph"]


@command("graph")
@click.argument("app", metavar="APP.py[:FLOW]", type=click.Path())
@click.option(
    "--format",
    "form",
    type=click.Choice(["text", "mermaid", "svg", "json"]),
    default="text",
    help="How to draw it; default text.",
)
def graph(*, app: str, form: str, as_json: bool) -> None:
    r"""Draw a flow: sources, steps, operators with their uid and state, sinks.

    Neither input nor store is read, and Spark is not started unless the file asks for
    it. Boxes of one stage run in one Spark job; a step with several readers is in the
    stage of each.

    \b
    Examples:
      riverlock graph app.py
      riverlock graph app.py:shop --format svg > shop.svg
    """
    target = parse(app)
    drawn = find_flow(load(target), target.name).graph
    if as_json or form == "json":
        text.print_json(drawn.to_dict())
    elif form == "mermaid":
        click.echo(drawn.mermaid(), nl=False)
    elif form == "svg":
        click.echo(drawn.svg(), nl=False)
    else:
        click.echo(str(drawn))
