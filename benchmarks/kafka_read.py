"""How fast are records read from Kafka, against bare consumers?

    python -m benchmarks.kafka_read [--rows 4000000] [--partitions 2] [--warm-up 40]

A broker is started and filled. The bare peer is a loop over ``Consumer.consume`` that
looks at each value, in as many processes as Spark has cores, each with its own
partitions. It is measured twice: with the client's own settings, of which one makes it
pause for a second whenever it has fetched faster than the loop reads, and with those
of our source. Ours is a flow that reads the same records, in epochs of equal size, and
keeps none of them. Epochs are as large as backlogs make them: small ones would measure
what an epoch costs (see ``floor``), not reading. Start-up is left out of both: that of
the processes, and of ours as many rounds through the topic as Spark's virtual machine
needs to compile its own code, and the first epoch. All share the machine with the
broker.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks import harness
from benchmarks.common import save, show
from riverlock.connectors.kafka.ranges import SETTINGS

TOPIC = "numbers"
EPOCHS = 4  # of a round through the topic
# What a contender may take at most.
BESIDE_SECONDS, LEAST_RATE = 60.0, 50_000


def fill(servers: str, rows: int, partitions: int, size: int) -> None:
    """Send records of one size, evenly to the partitions."""
    from confluent_kafka import Producer
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": servers})
    admin.create_topics([NewTopic(TOPIC, partitions, 1)])[TOPIC].result(60)
    producer = Producer({"bootstrap.servers": servers, "linger.ms": 50})
    for number in range(rows):
        value = (b"%d " % number).ljust(size, b"x")
        while True:
            try:
                producer.produce(TOPIC, value, partition=number % partitions)
                break
            except BufferError:
                producer.poll(0.1)
    producer.flush(600)


def consume(
    servers: str, partitions: list[int], settings: dict[str, str], ready: Any
) -> None:
    """Look at every value of some partitions, once all processes are there."""
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer(
        {
            **settings,
            "bootstrap.servers": servers,
            "group.id": "bare",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    ready.wait()
    consumer.assign([TopicPartition(TOPIC, number, 0) for number in partitions])
    ended, total = 0, 0
    while ended < len(partitions):
        for message in consumer.consume(10_000, timeout=0.05):
            if message.error() is not None:
                ended += 1
            else:
                total += len(message.value())
    ready.wait()
    consumer.close()


def bare(
    servers: str,
    rows: int,
    partitions: int,
    processes: int,
    settings: dict[str, str],
) -> float:
    """Return records per second of bare consumers."""
    context = multiprocessing.get_context("spawn")
    mine = [list(range(n, partitions, processes)) for n in range(processes)]
    mine = [numbers for numbers in mine if numbers]
    ready = context.Barrier(len(mine) + 1, timeout=600)
    running = [
        context.Process(target=consume, args=(servers, numbers, settings, ready))
        for numbers in mine
    ]
    for each in running:
        each.start()
    ready.wait()
    began = time.perf_counter()
    ready.wait()
    took = time.perf_counter() - began
    for each in running:
        each.join()
    return rows / took


def ours(servers: str, rows: int, cores: int, warm_up: float) -> float:
    """Return records per second of a flow that has run for a while."""
    until = time.monotonic() + warm_up
    while time.monotonic() < until:
        _round(servers, rows, cores)
    ends = _round(servers, rows, cores)
    return (EPOCHS - 1) * (rows // EPOCHS) / (ends[-1] - ends[0])


def _round(servers: str, rows: int, cores: int) -> list[float]:
    """Read the topic once; returns when each epoch was committed."""
    import riverlock as rl

    ends: list[float] = []
    flow = rl.Flow("kafka-read")
    records = flow.read(rl.sources.kafka(servers, TOPIC), uid="in")
    records.where("length(value) < 0").write(rl.sinks.memory(), uid="none")
    with tempfile.TemporaryDirectory() as place:
        flow.run(
            place,
            spark=rl.spark_session("kafka-read", master=f"local[{cores}]"),
            available_now=True,
            epoch_target=None,
            max_rows_per_epoch=rows // EPOCHS,
            on_status=lambda _: ends.append(time.perf_counter()),
        )
    return ends[:EPOCHS]


PEERS = {"bare consumers": {}, "with our settings": SETTINGS}


FILL = "filling the topic"


def rate(chosen: argparse.Namespace) -> float:
    """Return records per second of one contender, or of what comes before all."""
    servers, rows, cores = chosen.servers, chosen.rows, chosen.cores
    if chosen.only == FILL:
        began = time.perf_counter()
        fill(servers, rows, chosen.partitions, chosen.size)
        return float(rows / (time.perf_counter() - began))
    if chosen.only in PEERS:
        return bare(servers, rows, chosen.partitions, cores, PEERS[chosen.only])
    return ours(servers, rows, cores, chosen.warm_up)


def main() -> None:
    """Measure all, and print the ratios."""
    from tools.kafka_server import running

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=4_000_000)
    parser.add_argument("--partitions", type=int, default=2)
    parser.add_argument("--size", type=int, default=100)
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--warm-up", type=float, default=40, help="seconds, of ours")
    parser.add_argument("--servers", help=argparse.SUPPRESS)
    parser.add_argument("--only", help=argparse.SUPPRESS)
    harness.add_options(parser, PEERS)
    chosen = parser.parse_args()
    if chosen.only:
        print(json.dumps(rate(chosen)))
        return
    # Rounds through the topic until the warm-up is over, and one that is measured.
    most = BESIDE_SECONDS + chosen.warm_up + 2 * chosen.rows / LEAST_RATE
    with tempfile.TemporaryDirectory() as place, running(Path(place)) as kafka:
        given = [*sys.argv[1:], "--servers", kafka.servers, "--only"]
        contenders = [harness.Contender(FILL, [*given, FILL], most)]
        contenders += [
            harness.Contender(name, [*given, name], most, peer=name) for name in PEERS
        ]
        contenders.append(harness.Contender("riverlock", [*given, "riverlock"], most))
        found = harness.measure(
            "benchmarks.kafka_read", contenders, "{:,.0f} records/s".format, chosen
        )
    rates = {name: result for name, (result,) in found.items() if name != FILL}
    mine = rates.get("riverlock")
    ratios = {n: mine / each for n, each in rates.items() if n in PEERS and mine}
    show(
        f"Kafka, {chosen.rows:,} records of {chosen.size} bytes",
        ["", "records/s", "ours is"],
        [
            [name, f"{each:,.0f}", f"{ratios[name]:.2f} x" if name in ratios else ""]
            for name, each in rates.items()
        ],
    )
    save("kafka_read", {"records_per_second": rates, "ratios": ratios})


if __name__ == "__main__":
    main()
