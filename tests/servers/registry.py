"""A schema registry of a few lines, on loopback.

The real one is a Java service of its own. This one answers the requests that are
documented for readers: a schema by number, and a version of a subject.
"""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import quote

USER, PASSWORD = "reader", "r3gistry/%"


@dataclass
class SchemaRegistry:
    """What it holds, and what it was asked for."""

    port: int = 0
    by_path: dict[str, Any] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    # Answered instead of anything else.
    status: int | None = None
    body: str | None = None

    @property
    def url(self) -> str:
        login = f"{USER}:{quote(PASSWORD, safe='')}"
        return f"http://{login}@127.0.0.1:{self.port}"

    def add(
        self,
        number: int,
        schema: str,
        *,
        kind: str = "AVRO",
        references: list[dict[str, Any]] | None = None,
    ) -> None:
        found: dict[str, Any] = {"schema": schema}
        if kind != "AVRO":
            found["schemaType"] = kind
        if references:
            found["references"] = references
        self.by_path[f"/schemas/ids/{number}"] = found
        self.by_path[f"/subjects/s{number}/versions/1"] = found


@contextmanager
def schema_registry() -> Iterator[SchemaRegistry]:
    registry = SchemaRegistry()
    login = base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            path = self.path.partition("?")[0]
            registry.asked.append(self.path)
            found = registry.by_path.get(path)
            status = 200 if found else 404
            if self.headers.get("Authorization") != f"Basic {login}":
                status = 401
            body = json.dumps(found if status == 200 else {"error_code": 40403})
            self.send_response(registry.status or status)
            self.end_headers()
            self.wfile.write((registry.body or body).encode())

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        registry.port = server.server_port
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield registry
        finally:
            server.shutdown()
            thread.join()
