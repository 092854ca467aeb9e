"""Where a database is: a parsed URL whose password nobody gets to see."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import parse_qsl, quote, unquote, urlsplit

from riverlock.core.errors import InvalidConfigError

__all__ = ["Address", "parse_address"]

_NAMES = {
    "sqlite": "sqlite",
    "postgresql": "postgresql",
    "postgres": "postgresql",
    "mysql": "mysql",
    "mariadb": "mysql",
}
_EXPECTED = (
    "sqlite:///file.db, postgresql://user:password@host:port/database"
    " or mysql://user:password@host:port/database"
)


@dataclass(frozen=True, kw_only=True)
class Address:
    """A database; prints without user, password and options."""

    dialect: str
    host: str | None = None
    port: int | None = None
    database: str  # of SQLite, the absolute path of its file
    user: str | None = field(default=None, repr=False)
    password: str | None = field(default=None, repr=False)
    options: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    # The path of a file as it was given; ``database`` is what it meant then.
    given: str = field(default="", repr=False, compare=False)

    def __str__(self) -> str:
        """Return a URL that names the place and nothing secret."""
        port = "" if self.port is None else f":{self.port}"
        return f"{self.dialect}://{self.host or ''}{port}/{self.database}"

    def masked(self, text: str) -> str:
        """Return a text, such as that of an error, without the password."""
        secrets = [v for k, v in self.options if "pass" in k or "key" in k]
        for secret in (self.password, *secrets):
            if secret:
                text = text.replace(secret, "***").replace(quote(secret), "***")
        return text


def parse_address(url: str) -> Address:
    """Parse a URL.

    Raises:
        InvalidConfigError: It is not a URL, or of a database that we do not know.
    """
    scheme, separator, _ = url.partition("://")
    dialect = _NAMES.get(scheme)
    if dialect is None or not separator:
        # Not the URL itself: it may hold a password.
        found = f"scheme {scheme!r}" if separator else "no scheme"
        raise InvalidConfigError("database URL", expected=_EXPECTED, found=found)
    if dialect == "sqlite":
        return _file(url.partition("://")[2])
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise InvalidConfigError(
            "database URL", expected=_EXPECTED, found="a URL that cannot be parsed"
        ) from None
    if not parts.path.strip("/"):
        raise InvalidConfigError(
            "database URL", expected=_EXPECTED, found="no database name"
        )
    return Address(
        dialect=dialect,
        host=parts.hostname,
        port=port,
        user=None if parts.username is None else unquote(parts.username),
        password=None if parts.password is None else unquote(parts.password),
        database=unquote(parts.path.strip("/")),
        options=tuple(parse_qsl(parts.query)),
    )


def _file(rest: str) -> Address:
    """Make the path absolute: tasks and driver may differ in directory and home."""
    path = unquote(rest.removeprefix("/"))
    if not rest.startswith("/") or not path or path == ":memory:":
        raise InvalidConfigError(
            "database URL",
            expected="a file: sqlite:///data.db, or sqlite:////var/data.db",
            found=f"sqlite://{rest}",
        )
    return Address(
        dialect="sqlite",
        database=str(Path(path).expanduser().absolute()),
        given=path,
    )
