"""``riverlock new``."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

import click

from riverlock.cli import text
from riverlock.cli.command import command
from riverlock.core.errors import InvalidConfigError
from riverlock.core.ids import check_name

__all__ = ["new"]

# Name in the package -> name in the project; those that end in .py must not be
# imported or tested where they lie.
_FILES = {
    "app.py.txt": "app.py",
    "test_app.py.txt": "test_app.py",
    "readme.md.txt": "README.md",
    "pyproject.toml.txt": "pyproject.toml",
    "gitignore.txt": ".gitignore",
}


@command("new")
@click.argument("name", type=click.Path(path_type=Path))
def new(*, name: Path, as_json: bool) -> None:
    r"""Make a small project that is ready to run: a flow, a test, a README.

    NAME is the folder to create; its last part names the flow. The folder must be new
    or empty.

    \b
    Examples:
      riverlock new shop
      riverlock new ~/flows/fraud && cd ~/flows/fraud && pytest
    """
    folder = name.expanduser()
    flow = check_name("project name", folder.resolve().name)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InvalidConfigError(
            f"folder {name}",
            expected="a new or empty folder",
            found="one with files in it" if folder.is_dir() else "a file of that name",
            hint="choose another name",
        )
    folder.mkdir(parents=True, exist_ok=True)
    templates = files("riverlock.cli") / "template"
    for template, target in _FILES.items():
        content = (templates / template).read_text(encoding="utf-8")
        filled = content.replace("@NAME@", flow)
        (folder / target).write_text(filled, encoding="utf-8")
    if as_json:
        text.print_json({"folder": str(folder), "files": list(_FILES.values())})
        return
    click.echo(f"made {folder}: {', '.join(_FILES.values())}\n")
    click.echo("next:")
    click.echo(f"  cd {name}")
    click.echo("  riverlock run app.py --store store --available-now")
    click.echo("  riverlock state store totals")
    click.echo("  pytest")
