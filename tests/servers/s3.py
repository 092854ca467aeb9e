"""An emulator of S3 on loopback, with conditional puts, in a process of its own.

Of its own, since clients written in Rust may wait for an answer without letting go of
the interpreter's lock.
"""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest


@contextmanager
def s3_server() -> Iterator[str]:
    """Serve one bucket, named ``bucket``; gives the endpoint."""
    pytest.importorskip("moto")
    command = [sys.executable, __file__]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            endpoint = server.stdout.readline().strip()
            assert endpoint, "the emulator of S3 did not start"
            yield endpoint
        finally:
            server.kill()


def s3_settings(endpoint: str) -> dict[str, str]:
    """Return the environment that points clients to the emulator."""
    return {
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_ALLOW_HTTP": "true",
        "AWS_REGION": "us-east-1",
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
    }


def _serve() -> None:
    import logging
    import urllib.request

    from moto.moto_server.werkzeug_app import (
        DomainDispatcherApplication,
        create_backend_app,
    )
    from werkzeug.serving import make_server

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    app = DomainDispatcherApplication(create_backend_app)
    turn = threading.Lock()

    def one_at_a_time(environ: Any, start_response: Any) -> Any:
        # A conditional put is atomic in S3, but not in moto.
        with turn:
            return app(environ, start_response)

    # A thread per connection: clients keep theirs open.
    server = make_server("127.0.0.1", 0, one_at_a_time, threaded=True)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    endpoint = f"http://127.0.0.1:{server.server_port}"
    request = urllib.request.Request(f"{endpoint}/bucket", method="PUT")
    urllib.request.urlopen(request, timeout=120).close()
    print(endpoint, flush=True)
    thread.join()


if __name__ == "__main__":
    _serve()
