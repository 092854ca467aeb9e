"""Servers that live as long as the test run; see ``tests/conftest.py``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.servers.mariadb import Mariadb
    from tests.servers.postgres import Postgres


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    """A PostgreSQL server."""
    pytest.importorskip("psycopg", reason="PostgreSQL needs psycopg")
    from tests.servers.postgres import Postgres

    server = Postgres()
    try:
        server.start()
        yield server
    finally:
        server.close()


@pytest.fixture(scope="session")
def mariadb() -> Iterator[Mariadb]:
    """A MariaDB server."""
    pytest.importorskip("pymysql", reason="MariaDB needs PyMySQL")
    from tests.servers.mariadb import Mariadb

    server = Mariadb()
    try:
        server.start()
        yield server
    finally:
        server.close()


@pytest.fixture(scope="session")
def s3_endpoint() -> Iterator[str]:
    """An emulator of S3."""
    from tests.servers.s3 import s3_server

    with s3_server() as endpoint:
        yield endpoint
