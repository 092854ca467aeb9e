"""A Kafka broker on loopback, for tests, examples and benchmarks.

One process is broker and controller (KRaft). It keeps everything below one folder, so
that it can be stopped, killed and started again as itself.
"""

from __future__ import annotations

import shutil
import socket
import subprocess
import time
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Final

from tools.kafka_jars import default_folder, missing

from riverlock.spark.java import find_java

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ["KafkaServer", "running", "why_not"]

# Small, and without a second compiler: it lives for seconds or minutes.
_JAVA: Final = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
_READY_SECONDS: Final = 180.0
# Without the last one the controller writes a record twice a second, whatever happens:
# a third of what an idle broker costs.
_SETTINGS: Final = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners={listeners},CONTROLLER://127.0.0.1:{controller}
advertised.listeners={advertised}
listener.security.protocol.map=CONTROLLER:PLAINTEXT,OWN:PLAINTEXT,PROXIED:PLAINTEXT
inter.broker.listener.name=OWN
controller.listener.names=CONTROLLER
log.dirs={data}
auto.create.topics.enable=false
group.initial.rebalance.delay.ms=0
offsets.topic.num.partitions=1
offsets.topic.replication.factor=1
transaction.state.log.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.abort.timed.out.transaction.cleanup.interval.ms=500
share.coordinator.state.topic.num.partitions=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
metadata.max.idle.interval.ms=0
"""
# What formatting would write; it costs a Java start of its own.
_META: Final = "version=1\ncluster.id=cml2ZXJsb2NrLWthZmthMQ\nnode.id=1\n"


def why_not() -> str | None:
    """Return why this machine cannot run a broker; None if it can."""
    if find_java() is None:
        return "no Java 17 or newer"
    if missing(default_folder()):
        return "the broker was not fetched: run tools/kafka_jars.py"
    try:
        import confluent_kafka  # noqa: F401
    except ImportError:
        return "confluent-kafka is not installed"
    return None


class KafkaServer:
    """One broker; ``start`` returns when it answers."""

    def __init__(self, folder: Path, proxy: int | None = None) -> None:
        """Choose ports that are free now; ``start`` takes others if they are not.

        Clients that come by the port of a proxy, which connects to the port ``behind``,
        are told to come by it again.
        """
        self._folder, self._proxy = folder, proxy
        self._process: subprocess.Popen[bytes] | None = None
        self._choose()

    @property
    def servers(self) -> str:
        """What clients connect to."""
        return f"127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start it, and wait until it answers."""
        is_new = not (self._folder / "data").exists()
        deadline = time.monotonic() + _READY_SECONDS
        while not self._started(deadline):
            if not is_new or time.monotonic() > deadline:
                raise RuntimeError(f"Kafka did not start:\n{self._words()}")
            # Somebody may have taken a port meanwhile.
            self.kill()
            shutil.rmtree(self._folder / "data", ignore_errors=True)
            self._choose()

    def stop(self) -> None:
        """Let it end in order."""
        if self._process is not None:
            self._process.terminate()
            self._process.wait()

    def kill(self) -> None:
        """End it at once."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def _choose(self) -> None:
        with ExitStack() as stack:
            taken = [stack.enter_context(socket.socket()) for _ in range(3)]
            for each in taken:
                each.bind(("127.0.0.1", 0))
            ports = (s.getsockname()[1] for s in taken)
            self.port, self.behind, self._controller = ports

    def _started(self, deadline: float) -> bool:
        data, settings = self._folder / "data", self._folder / "server.properties"
        data.mkdir(parents=True, exist_ok=True)
        if not (data / "meta.properties").exists():
            # Later it has the folder's own id: a broker that has another folder than
            # when it left in order leads nothing.
            (data / "meta.properties").write_text(_META, encoding="utf-8")
        settings.write_text(self._settings(data), encoding="utf-8")
        java = find_java()
        assert java is not None
        classes = f"{default_folder()}/*"
        command = [str(java.executable), *_JAVA, "-cp", classes, "kafka.Kafka"]
        if keeper := shutil.which("setpriv"):
            # It ends with the thread that started it, even if that is killed.
            command = [keeper, "--pdeathsig", "KILL", *command]
        with (self._folder / "out.txt").open("ab") as out:
            self._process = subprocess.Popen(
                [*command, str(settings)], stdout=out, stderr=subprocess.STDOUT
            )
        return self._answers(deadline)

    def _settings(self, data: Path) -> str:
        listeners = {"OWN": self.port}
        advertised = dict(listeners)
        if self._proxy is not None:
            listeners["PROXIED"], advertised["PROXIED"] = self.behind, self._proxy
        return _SETTINGS.format(
            listeners=_addresses(listeners),
            advertised=_addresses(advertised),
            controller=self._controller,
            data=data,
        )

    def _answers(self, deadline: float) -> bool:
        from confluent_kafka import KafkaException
        from confluent_kafka.admin import AdminClient

        assert self._process is not None
        wait = {"reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 100}
        quiet = {"log_level": 0, "bootstrap.servers": self.servers}
        admin = AdminClient({**quiet, **wait})
        while self._process.poll() is None and time.monotonic() < deadline:
            try:
                if admin.list_topics(timeout=1).brokers:
                    return True
            except KafkaException:
                continue
        return False

    def _words(self) -> str:
        return (self._folder / "out.txt").read_text(encoding="utf-8")[-2000:]


def _addresses(ports: dict[str, int]) -> str:
    return ",".join(f"{name}://127.0.0.1:{port}" for name, port in ports.items())


@contextmanager
def running(folder: Path, proxy: int | None = None) -> Iterator[KafkaServer]:
    """Run a broker for a while."""
    server = KafkaServer(folder, proxy)
    try:
        server.start()
        yield server
    finally:
        server.kill()
