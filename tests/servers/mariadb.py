"""MariaDB from the packages of Debian or Ubuntu, unpacked beside the environment.

Nothing is installed into the system, and root is not needed.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pymysql
import pytest
from tests.servers.processes import Server

PASSWORD = "my-s3cret/%"
_PACKAGE = "mariadb-server-core"
_SYSTEM = (
    "mysql_system_tables.sql",
    "mysql_performance_tables.sql",
    "mysql_system_tables_data.sql",
)


def _unpacked() -> Path:
    """Return the folder of the unpacked packages; fetches them once."""
    default = Path(sys.prefix) / "test-servers"
    cache = Path(os.environ.get("RIVERLOCK_TEST_SERVERS", default))
    cache.mkdir(parents=True, exist_ok=True)
    whole = cache / "mariadb"
    with (cache / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not whole.exists():
            building = cache / "mariadb.part"
            shutil.rmtree(building, ignore_errors=True)
            building.mkdir()
            _fetch(building)
            building.rename(whole)
    return whole


def _fetch(folder: Path) -> None:
    for program in ("apt-get", "apt-cache", "dpkg", "dpkg-query"):
        if shutil.which(program) is None:
            pytest.skip(f"MariaDB is taken from Debian packages: there is no {program}")
    if not _download(folder, [_PACKAGE]):
        if os.geteuid() == 0:
            subprocess.run(["apt-get", "update"], check=False, capture_output=True)
        if not _download(folder, [_PACKAGE]):
            pytest.skip(f"apt-get could not download {_PACKAGE}")
    missing = [name for name in _dependencies() if not _is_installed(name)]
    if missing and not _download(folder, missing):
        pytest.skip(f"apt-get could not download {', '.join(missing)}")
    for package in folder.glob("*.deb"):
        subprocess.run(["dpkg", "-x", str(package), str(folder)], check=True)
        package.unlink()


def _download(folder: Path, packages: list[str]) -> bool:
    done = subprocess.run(
        ["apt-get", "download", *packages],
        cwd=folder,
        check=False,
        capture_output=True,
    )
    return done.returncode == 0


def _dependencies() -> list[str]:
    found = subprocess.run(
        ["apt-cache", "depends", _PACKAGE], check=True, capture_output=True, text=True
    )
    lines = (line.split() for line in found.stdout.splitlines())
    return [words[1] for words in lines if words[0] == "Depends:"]


def _is_installed(package: str) -> bool:
    found = subprocess.run(
        ["dpkg-query", "--show", "--showformat=${Status}", package],
        check=False,
        capture_output=True,
        text=True,
    )
    return found.stdout.endswith(" installed")


class Mariadb(Server):
    """A server that listens on a Unix socket only."""

    def __init__(self) -> None:
        super().__init__("mariadb")
        self._data = self.folder / "data"
        self._first = self.folder / "first.sql"

    def prepare(self) -> None:
        self._root = _unpacked()
        self._data.mkdir()
        if self.as_user:
            os.chown(self._data, self.as_user["user"], self.as_user["group"])
        # Started as root it would want to change the user by itself.
        self.as_user_name = ["--user=nobody"] if self.as_user else []
        self.as_user = {}
        share = self._root / "usr/share/mysql"
        script = "CREATE DATABASE mysql;\nUSE mysql;\n" + "".join(
            (share / name).read_text() for name in _SYSTEM
        )
        subprocess.run(
            [*self._program(), "--bootstrap"],
            input=script.encode(),
            check=True,
            capture_output=True,
            env=self.environment(),
        )
        self._first.write_text(
            "CREATE DATABASE IF NOT EXISTS flow;\n"
            f"CREATE USER IF NOT EXISTS flow@'%' IDENTIFIED BY '{PASSWORD}';\n"
            f"CREATE USER IF NOT EXISTS flow@localhost IDENTIFIED BY '{PASSWORD}';\n"
            "GRANT ALL ON *.* TO flow@'%';\n"
            "GRANT ALL ON *.* TO flow@localhost;\n"
        )
        self._first.chmod(0o644)

    def environment(self) -> dict[str, str]:
        places = [
            str(folder)
            for part in ("usr/lib", "lib")
            for folder in (self._root / part).glob("*-linux-gnu*")
        ]
        return {**os.environ, "LD_LIBRARY_PATH": ":".join(places)}

    def _program(self) -> list[str]:
        return [
            str(self._root / "usr/sbin/mariadbd"),
            "--no-defaults",
            *self.as_user_name,
            f"--datadir={self._data}",
            f"--lc-messages-dir={self._root / 'usr/share/mysql'}",
            f"--character-sets-dir={self._root / 'usr/share/mysql/charsets'}",
            f"--plugin-dir={self._root / 'usr/lib/mysql/plugin'}",
            f"--socket={self.socket}",
            f"--pid-file={self.folder / 'pid'}",
            "--skip-networking",
            "--innodb-log-file-size=16M",
            "--innodb-buffer-pool-size=64M",
            # The process may die, the machine will not: what is written is durable.
            "--innodb-flush-log-at-trx-commit=2",
            "--innodb-flush-method=nosync",
        ]

    def command(self) -> list[str]:
        return [*self._program(), f"--init-file={self._first}"]

    @property
    def socket(self) -> Path:
        return self.folder / "socket"

    def url(self, port: int | None = None) -> str:
        """Return the URL of the database, on request through a proxy."""
        login = f"flow:{quote(PASSWORD, safe='')}"
        if port is not None:
            return f"mysql://{login}@127.0.0.1:{port}/flow?ssl_disabled=1"
        where = quote(str(self.socket), safe="")
        return f"mysql://{login}@localhost/flow?unix_socket={where}"

    def connect(self) -> Any:
        return pymysql.connect(
            unix_socket=str(self.socket),
            user="flow",
            password=PASSWORD,
            database="flow",
            autocommit=True,
            ssl_disabled=True,
        )

    def answers(self) -> bool:
        try:
            self.connect().close()
        except pymysql.err.MySQLError:
            return False
        return True

    def query(self, sql: str, *values: Any) -> list[Any]:
        """Run a statement on a connection of its own."""
        with self.connect() as connection, connection.cursor() as cursor:
            cursor.execute(sql, values or None)
            return list(cursor.fetchall())
