"""Install what a file lists into this environment, as pip would, only faster.

    python tools/install.py -r requirements/dev.txt --editable .

uv does it, which pip fetches first. It knows nothing of pip's settings, so those that
say where packages come from are handed on. Where uv cannot be had, or fails, pip does
the work. Standard library only: this runs before anything is installed.
"""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path
from typing import Final

UV: Final = Path(__file__).parents[1] / "requirements" / "uv.txt"
# By pip's names. Several values of one are separated by white space.
SETTINGS: Final = {
    "index-url": "UV_DEFAULT_INDEX",
    "extra-index-url": "UV_INDEX",
    "find-links": "UV_FIND_LINKS",
    "no-index": "UV_NO_INDEX",
    "trusted-host": "UV_INSECURE_HOST",
    "cert": "SSL_CERT_FILE",
    "proxy": "ALL_PROXY",
}
SEPARATED_BY_COMMA: Final = {"find-links"}
# PySpark comes as source: to compress 400 MB of jars that are unpacked at once takes
# longer than all the rest.
STORED: Final = "pyspark:--build-option=--compression=stored"


def pip(*arguments: str) -> list[str]:
    """Return a command of this environment's pip."""
    return [sys.executable, "-m", "pip", "--disable-pip-version-check", *arguments]


def handed_on(listed: str) -> dict[str, str]:
    """Return pip's settings as uv's variables.

    Args:
        listed: What ``pip config list`` prints; later lines go before earlier ones.
    """
    found = {}
    for line in listed.splitlines():
        name, _, value = line.partition("=")
        known = name.rpartition(".")[2]
        if known in SETTINGS:
            separator = "," if known in SEPARATED_BY_COMMA else " "
            found[SETTINGS[known]] = separator.join(ast.literal_eval(value).split())
    return found


def by_uv(arguments: list[str]) -> bool:
    """Let uv install; returns whether it has."""
    program = Path(sys.executable).with_name("uv")
    if not program.exists():
        fetch = pip("install", "--quiet", "--no-compile", "-r", str(UV))
        if subprocess.run(fetch, check=False).returncode != 0:
            return False
    asked = subprocess.run(
        pip("config", "list"), capture_output=True, text=True, check=False
    )
    environment = {**handed_on(asked.stdout), **os.environ}
    command = [str(program), "pip", "install", "--quiet", "--python", sys.executable]
    command += ["--no-deps", "--config-settings-package", STORED]
    done = subprocess.run([*command, *arguments], env=environment, check=False)
    return done.returncode == 0


def main() -> int:
    """Install; return the exit status."""
    arguments = sys.argv[1:]
    if by_uv(arguments):
        return 0
    print("uv did not do it: pip does", file=sys.stderr)
    install = pip("install", "--quiet", "--no-deps", *arguments)
    return subprocess.run(install, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
