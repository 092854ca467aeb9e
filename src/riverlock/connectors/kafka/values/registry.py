"""A schema registry: the schemas that values of records name by number."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import quote, unquote, urlsplit

from riverlock.core.errors import (
    InvalidConfigError,
    SourceError,
    SourceUnavailableError,
)
from riverlock.core.extras import load_extra

__all__ = ["Registered", "Registry", "UnknownSchemaError", "registry_at"]

_SECONDS: Final = 10.0
# Of subjects, versions and schemas that do not exist. A proxy in front of a registry
# that is away may answer 404 too, but without such a code.
_UNKNOWN: Final = (40401, 40402, 40403)
_MAY_PASS: Final = (408, 429)


class UnknownSchemaError(Exception):
    """The registry has no schema of this number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Registered:
    """A schema as the registry returns it, with those that it refers to."""

    kind: str  # AVRO, PROTOBUF or JSON
    text: str
    references: tuple[tuple[str, Registered], ...]  # by the name it uses


@dataclass(frozen=True, kw_only=True)
class Registry:
    """Where schemas are; prints without user and password. Picklable."""

    url: str
    login: str | None = field(default=None, repr=False)

    def schema(self, number: int, *, source: str, serialized: bool) -> Registered:
        """Ask for a schema; the meaning of a number never changes.

        Args:
            number: The number in records.
            source: The uid to name in errors.
            serialized: Ask for Protobuf as descriptors, not as text.

        Raises:
            UnknownSchemaError: There is none.
            SourceError: The registry refuses.
            SourceUnavailableError: It does not answer.
        """
        return self._registered(f"/schemas/ids/{number}", source, serialized=serialized)

    def _registered(self, path: str, source: str, *, serialized: bool) -> Registered:
        separator = "&" if "?" in path else "?"
        more = f"{separator}format=serialized" if serialized else ""
        found = self._get(path + more, source)
        references = tuple(
            (
                r["name"],
                self._registered(
                    # Records outlive the subjects of their schemas.
                    f"/subjects/{quote(r['subject'], safe='')}/versions/{r['version']}"
                    "?deleted=true",
                    source,
                    serialized=serialized,
                ),
            )
            for r in found.get("references") or ()
        )
        return Registered(
            kind=found.get("schemaType") or "AVRO",
            text=found["schema"],
            references=references,
        )

    def _get(self, path: str, source: str) -> dict[str, Any]:
        import urllib3

        headers = {"Accept": "application/vnd.schemaregistry.v1+json"}
        if self.login is not None:
            headers |= urllib3.make_headers(basic_auth=self.login)
        try:
            answer = urllib3.request(
                "GET", self.url + path, headers=headers, timeout=_SECONDS, retries=2
            )
        except urllib3.exceptions.HTTPError as error:
            raise self._away(source, type(error).__name__) from None
        said = _object(answer.data)
        if answer.status == 404 and said.get("error_code") in _UNKNOWN:
            raise UnknownSchemaError(path)
        if answer.status >= 500 or answer.status in (404, *_MAY_PASS):
            raise self._away(source, f"status {answer.status} for {path}")
        if answer.status != 200:
            raise SourceError(
                source,
                what=f"the schema registry at {self.url} refuses {path}: status"
                f" {answer.status}",
                hint="user and password are part of its URL:"
                " https://user:password@host",
            )
        if "schema" not in said:
            raise self._away(source, f"an answer to {path} that has no schema")
        return said

    def _away(self, source: str, cause: str) -> SourceUnavailableError:
        return SourceUnavailableError(
            source,
            what=f"the schema registry at {self.url} does not answer: {cause}",
        )


def _object(data: bytes) -> dict[str, Any]:
    """Return an answer; an empty one if somebody else gave it, such as a proxy."""
    try:
        found = json.loads(data)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def registry_at(url: str) -> Registry:
    """Parse a URL.

    Raises:
        InvalidConfigError: It is not a URL, or its client is not installed.
    """
    expected = "http://host:port, or https://user:password@host"
    try:
        parts = urlsplit(url)
        is_one = parts.scheme in ("http", "https") and bool(parts.hostname)
        port = parts.port
    except ValueError:
        is_one, port = False, None
    if not is_one:
        # Not the URL itself: it may hold a password.
        raise InvalidConfigError(
            "schema_registry", expected=expected, found="a URL of another form"
        )
    load_extra("urllib3", extra="avro", needed_for="a schema registry")
    at = "" if port is None else f":{port}"
    host = f"[{parts.hostname}]" if ":" in str(parts.hostname) else parts.hostname
    login = None
    if parts.username is not None:
        login = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
    place = f"{parts.scheme}://{host}{at}{parts.path.rstrip('/')}"
    return Registry(url=place, login=login)
