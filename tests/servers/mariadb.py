"""MariaDB from the packages of Debian or Ubuntu."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pymysql
from tests.servers.debian import libraries, unpacked
from tests.servers.processes import Server

PASSWORD = "my-s3cret/%"
_SYSTEM = (
    "mysql_system_tables.sql",
    "mysql_performance_tables.sql",
    "mysql_system_tables_data.sql",
)


class Mariadb(Server):
    """A server that listens on a Unix socket only."""

    def __init__(self) -> None:
        super().__init__("mariadb")
        self._data = self.folder / "data"
        self._first = self.folder / "first.sql"

    def prepare(self) -> None:
        self._root = unpacked("mariadb", "mariadb-server-core")
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
            "GRANT ALL ON *.* TO flow@'%' WITH GRANT OPTION;\n"
            "GRANT ALL ON *.* TO flow@localhost WITH GRANT OPTION;\n"
        )
        self._first.chmod(0o644)

    def environment(self) -> dict[str, str]:
        return libraries(self._root)

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
