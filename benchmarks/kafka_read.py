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
import multiprocessing
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.common import save, show
from riverlock.connectors.kafka.ranges import SETTINGS

TOPIC = "numbers"
EPOCHS = 4  # of a round through the topic


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
            spark=rl.session("kafka-read", master=f"local[{cores}]"),
            available_now=True,
            epoch_target=None,
            max_rows_per_epoch=rows // EPOCHS,
            on_status=lambda _: ends.append(time.perf_counter()),
        )
    return ends[:EPOCHS]


def main() -> None:
    """Measure both, and print the ratio."""
    from tools.kafka_server import running

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=4_000_000)
    parser.add_argument("--partitions", type=int, default=2)
    parser.add_argument("--size", type=int, default=100)
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--warm-up", type=float, default=40, help="seconds, of ours")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as place, running(Path(place)) as kafka:
        fill(kafka.servers, chosen.rows, chosen.partitions, chosen.size)
        sizes = chosen.rows, chosen.partitions, chosen.cores
        plain = bare(kafka.servers, *sizes, {})
        tuned = bare(kafka.servers, *sizes, SETTINGS)
        mine = ours(kafka.servers, chosen.rows, chosen.cores, chosen.warm_up)
    result = {
        "bare": plain,
        "bare, our settings": tuned,
        "riverlock": mine,
        "ratio": mine / plain,
        "ratio, our settings": mine / tuned,
    }
    show(
        f"Kafka, {chosen.rows:,} records of {chosen.size} bytes",
        ["", "records/s", "ours is"],
        [
            ["bare consumers", f"{plain:,.0f}", f"{mine / plain:.2f} x"],
            ["with our settings", f"{tuned:,.0f}", f"{mine / tuned:.2f} x"],
            ["riverlock", f"{mine:,.0f}", ""],
        ],
    )
    save("kafka_read", result)


if __name__ == "__main__":
    main()
