"""Word count over a socket.

A socket cannot be read twice, so its lines are first landed in a durable channel of the
store; from there on, nothing is lost or counted twice.

    python -m examples.word_count_socket          # with a small server of its own
    riverlock run examples/word_count_socket.py --store store/chat    # port 9999
"""

import contextlib
import socketserver
import threading
from collections.abc import Iterator

import riverlock as rl

LINES = ["the cat sat", "on the mat", "the end"]


def build(port: int, sink: rl.sinks.MemorySink | None = None) -> rl.Flow:
    flow = rl.Flow("socket-words")
    lines = flow.read(rl.sources.socket("127.0.0.1", port), uid="lines")
    words = lines.select("explode(split(value, ' ')) as word")
    counts = words.key_by("word").count(uid="counts")
    counts.write(sink or rl.sinks.console(), uid="totals")
    return flow


flow = build(9999)


@contextlib.contextmanager
def line_server(lines: list[str]) -> Iterator[int]:
    """Send lines to whoever connects, on a free port of this machine."""
    done = threading.Event()

    class Send(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            with contextlib.suppress(OSError):
                self.request.sendall("".join(f"{line}\n" for line in lines).encode())
            done.wait()  # Spark takes a closed connection for the end of its query

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Send) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield server.server_address[1]
        finally:
            done.set()
            server.shutdown()


def main() -> None:
    expected = sum(len(line.split()) for line in LINES)
    sink = rl.sinks.memory()
    with line_server(LINES) as port:
        handle = build(port, sink).start("store/socket-words")
        # Each epoch gives the words that it has had more of; the newest counts.
        while handle.is_active and sum(dict(sink.rows()).values()) < expected:
            handle.wait(0.2)
        handle.stop()
    for word, count in sorted(dict(sink.rows()).items()):
        print(f"{word}: {count}")


if __name__ == "__main__":
    main()
