"""Spark sessions: making a local one that just works, checking a user's own.

A flow runs on the session it gets, whatever the master. Without one, a local session is
made, with suitable settings for our jobs, and without a word on the terminal. Settings
that matter for correctness or speed on any session are applied around each run by
``job_conf`` and put back after it.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import re
import shutil
import sys
import tempfile
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pyspark.errors import PySparkRuntimeError
from pyspark.sql import SparkSession

from riverlock.spark.java import ensure_java
from riverlock.spark.shared_settings import applied

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

__all__ = ["JOB_SETTINGS", "ZONE", "check_session", "job_conf", "local_session"]

# Four attempts per task: plain local[*] would give up at the first.
DEFAULT_MASTER: Final = "local[*,4]"

# With a limit on bytes Spark adds up the size of the batch after every row, which was
# half of the time it spent in our tasks. The largest number means none; so many rows
# may then be of 200 KB each before a batch outgrows what Arrow can hold. A session
# whose rows are larger is made with settings of its own, which stay.
_BATCHES: Final[Mapping[str, str]] = {
    "spark.sql.execution.arrow.maxBytesPerBatch": "2147483647",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "10000",
}

# Times without a zone, in files, in literals and in ``timestamp_ntz``, mean the same in
# whichever session a flow runs, now and when an epoch is replayed.
ZONE: Final[Mapping[str, str]] = {"spark.sql.session.timeZone": "UTC"}

JOB_SETTINGS: Final[Mapping[str, str]] = {
    # Planning anew between stages costs more than an epoch's job, and may coalesce
    # the partitions that own key groups.
    "spark.sql.adaptive.enabled": "false",
    **_BATCHES,
    **ZONE,
    # A keyed stage needs all its tasks, for timers and votes, also when its input is
    # known to be empty: Spark must not optimise the exchange away.
    "spark.sql.optimizer.excludedRules": (
        "org.apache.spark.sql.catalyst.optimizer.PropagateEmptyRelation"
    ),
}

_SESSION_SETTINGS: Final[Mapping[str, str]] = {
    **JOB_SETTINGS,
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    # A crash of native code in a worker names the Python line.
    "spark.sql.execution.pyspark.udf.faulthandler.enabled": "true",
    "spark.python.worker.faulthandler.enabled": "true",
    "spark.python.worker.reuse": "true",
    "spark.python.daemon.module": "riverlock.spark.daemon",
    # Over TCP the first batch of a task waits 40 ms for a delayed acknowledgement.
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}

_LOOPBACK: Final = "127.0.0.1"
_JAVA_OPTIONS: Final = "spark.driver.extraJavaOptions"
_LOCAL: Final = re.compile(r"local(?:\[(?P<cores>\*|\d+)(?:,\s*(?P<failures>\d+))?\])?")
_LOCAL_CLUSTER: Final = re.compile(r"local-cluster\[(\d+),\s*(\d+),\s*\d+\]")


def local_session(
    app_name: str = "riverlock",
    *,
    master: str | None = None,
    conf: Mapping[str, str] | None = None,
) -> SparkSession:
    """Return the active session, or start one on this machine.

    Under ``spark-submit`` the session is the submitted application's, on its master.

    Args:
        app_name: The name that Spark shows, if a session is started.
        master: The master, if a session is started; by default ``local[*,4]``.
        conf: Settings that override ours, if a session is started.

    Raises:
        InvalidConfigError: If there is no Java that Spark runs on.
    """
    given = dict(conf or {})
    existing = _existing_session()
    if existing is not None:
        return existing
    if "PYSPARK_GATEWAY_PORT" in os.environ:
        return _build(app_name, given)
    chosen = master or given.get("spark.master") or DEFAULT_MASTER
    # Workers must run what the driver runs: the same Python, the same packages.
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    with _environment(_launch_environment(chosen)):
        return _build(app_name, _settings(chosen, given))


def check_session(spark: SparkSession) -> list[str]:
    """Return what a user's own session lacks, a sentence each; empty if nothing.

    Settings that ``job_conf`` applies are not among them.
    """
    if type(spark).__module__.startswith("pyspark.sql.connect"):
        return [
            "the session is a Spark Connect session, which has no driver in this"
            " process; use a classic session (SparkSession.builder.master(...))"
        ]
    lacks = []
    if not spark.version.startswith("4.3"):
        lacks.append(f"Spark is {spark.version}; riverlock needs 4.3")
    settings = spark.sparkContext.getConf()
    if settings.get("spark.python.worker.reuse", "true") != "true":
        lacks.append(
            "spark.python.worker.reuse is false; set it to true, or each task pays"
            " for a new Python process and opens its state anew"
        )
    if os.environ.get("PYSPARK_PIN_THREAD", "true").lower() != "true":
        lacks.append(
            "PYSPARK_PIN_THREAD is false; unset it, or jobs of several threads get each"
            " other's settings"
        )
    retries = _retries(
        settings.get("spark.master") or "",
        settings.get("spark.task.maxFailures") or "4",
    )
    if retries is not None:
        lacks.append(retries)
    return lacks


@contextlib.contextmanager
def job_conf(
    spark: SparkSession, settings: Mapping[str, str] = JOB_SETTINGS
) -> Iterator[None]:
    """Apply the settings that our jobs need, and put the user's back afterwards.

    They are the session's: other queries that are planned on it meanwhile see them. If
    several flows run on it, they stay until the last one ends.
    """
    made_with = spark.sparkContext.getConf()
    needed = {
        name: value
        for name, value in settings.items()
        if name not in _BATCHES or not made_with.contains(name)
    }
    with applied(spark, needed):
        yield


def _existing_session() -> SparkSession | None:
    try:
        return SparkSession.active()
    except PySparkRuntimeError:
        return None


def _build(app_name: str, settings: Mapping[str, str]) -> SparkSession:
    builder = SparkSession.builder.appName(app_name)
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def _settings(master: str, given: Mapping[str, str]) -> dict[str, str]:
    settings = {
        **_SESSION_SETTINGS,
        "spark.sql.warehouse.dir": _warehouse(),
        "spark.master": master,
    }
    if _is_local(master):
        settings["spark.driver.host"] = _LOOPBACK
        settings["spark.driver.bindAddress"] = _LOOPBACK
        settings["spark.sql.shuffle.partitions"] = str(_cores(master))
        # What stays in this machine's page cache is not worth compressing. Spark never
        # checks these checksums: it asks the first whether disk or network was to
        # blame, and the second whether a part that was lost is the same once more.
        settings["spark.shuffle.compress"] = "false"
        settings["spark.shuffle.checksum.enabled"] = "false"
        settings["spark.sql.shuffle.orderIndependentChecksum.enabled"] = "false"
    settings.update(given)
    settings[_JAVA_OPTIONS] = _quiet(settings.get(_JAVA_OPTIONS, ""))
    return settings


def _quiet(options: str) -> str:
    """Add our logging, which is silent until something fails, unless another is set.

    Passed when the JVM starts: ``setLogLevel`` comes too late for the
    lines that Spark prints while it does.
    """
    if "log4j2.configurationFile" in options:
        return options
    properties = Path(__file__).with_name("log4j2.properties").as_uri()
    return f"{options} -Dlog4j2.configurationFile={properties}".strip()


def _warehouse() -> str:
    """Name a directory for tables: Spark makes it with the first one, if ever."""
    path = Path(tempfile.gettempdir()) / f"riverlock-warehouse-{uuid.uuid4().hex}"
    atexit.register(shutil.rmtree, path, ignore_errors=True)
    return path.as_uri()


def _launch_environment(master: str) -> dict[str, str]:
    environment = {"JAVA_HOME": str(ensure_java())}
    if _is_local(master) and "SPARK_LOCAL_IP" not in os.environ:
        # Spares Spark the look-up of the machine's name, which fails in many
        # containers and without a network.
        environment["SPARK_LOCAL_IP"] = _LOOPBACK
    return environment


@contextlib.contextmanager
def _environment(values: Mapping[str, str]) -> Iterator[None]:
    """Set variables for the JVM that is started meanwhile."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, old in before.items():
            if old is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = old


def _is_local(master: str) -> bool:
    return master.startswith("local")


def _cores(master: str) -> int:
    if cluster := _LOCAL_CLUSTER.fullmatch(master):
        return int(cluster[1]) * int(cluster[2])
    match = _LOCAL.fullmatch(master)
    cores = match["cores"] if match else None
    if cores == "*":
        return os.cpu_count() or 1
    return int(cores or 1)


def _retries(master: str, max_failures: str) -> str | None:
    """Return what is wrong if a failed task would fail the job at once."""
    local = _LOCAL.fullmatch(master)
    if local is None:
        if int(max_failures) > 1:
            return None
        return "spark.task.maxFailures is 1; set it to 4, so that tasks are retried"
    if int(local["failures"] or 1) > 1:
        return None
    cores = local["cores"] or "1"
    return (
        f"the master {master} does not retry tasks; use local[{cores},4], so that a"
        " lost Python worker does not fail the epoch"
    )
