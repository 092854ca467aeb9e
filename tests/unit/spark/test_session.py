"""Sessions that we start are silent and set up; those of users are left as they are."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from riverlock.spark import session

# In a process of its own: the session of this one may be there already.
PROGRAM = """
import json, os, sys
import pyarrow as pa
from pyspark.sql import SparkSession
from riverlock.spark.session import check_session, job_conf, local_session

def rows(batches):
    for batch in batches:
        vote = {"n": [batch.num_rows], "python": [sys.executable]}
        yield pa.RecordBatch.from_pydict(vote)

conf = {"spark.sql.shuffle.partitions": "3"}
spark = local_session("test", master="local[2,4]", conf=conf)
votes = spark.range(1000).mapInArrow(rows, "n long, python string").collect()
spark.conf.set("spark.sql.adaptive.enabled", "true")
spark.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")
with job_conf(spark):
    inside = spark.conf.get("spark.sql.adaptive.enabled")
one, two = job_conf(spark), job_conf(SparkSession.active())
one.__enter__()
two.__enter__()
one.__exit__(None, None, None)
beside = spark.conf.get("spark.sql.adaptive.enabled")
two.__exit__(None, None, None)
json.dump({
    "rows": sum(vote.n for vote in votes),
    "pythons": sorted({vote.python for vote in votes}),
    "lacks": check_session(spark),
    "same": local_session() is spark,
    "inside": inside,
    "beside": beside,
    "after": spark.conf.get("spark.sql.adaptive.enabled"),
    "unset": spark.conf.get("spark.sql.execution.arrow.maxRecordsPerBatch", None),
    "partitions": spark.conf.get("spark.sql.shuffle.partitions"),
    "host": spark.sparkContext.getConf().get("spark.driver.host"),
    "local_ip": os.environ.get("SPARK_LOCAL_IP"),
}, sys.stdout)
spark.stop()
"""


@pytest.mark.spark
def test_local_session_is_silent_and_set_up(tmp_path: Path) -> None:
    hidden = {"SPARK_LOCAL_IP", "PYSPARK_PYTHON", "RIVERLOCK_FAULTS"}
    # Java says aloud that it has picked these up.
    hidden |= {"JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS"}
    env = {name: value for name, value in os.environ.items() if name not in hidden}

    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        capture_output=True,
        text=True,
        timeout=500,
        cwd=tmp_path,
        env=env,
        check=False,
    )

    assert done.stderr == ""
    assert done.returncode == 0
    assert list(tmp_path.iterdir()) == []
    assert json.loads(done.stdout) == {
        "rows": 1000,
        "pythons": [sys.executable],
        "lacks": [],
        "same": True,
        "inside": "false",
        # Another flow goes on while one ends.
        "beside": "false",
        "after": "true",
        "unset": None,
        "partitions": "3",
        "host": "127.0.0.1",
        "local_ip": None,
    }


@pytest.mark.parametrize(
    ("master", "cores"),
    [
        ("local", 1),
        ("local[3]", 3),
        ("local[3,4]", 3),
        ("local[*,4]", os.cpu_count()),
        ("local-cluster[2,3,1024]", 6),
    ],
)
def test_cores_are_read_from_the_master(master: str, cores: int) -> None:
    assert session._cores(master) == cores


@pytest.mark.parametrize(
    ("master", "failures", "advice"),
    [
        ("local", "4", "local[1,4]"),
        ("local[*]", "4", "local[*,4]"),
        ("local[2,1]", "4", "local[2,4]"),
        ("spark://host:7077", "1", "spark.task.maxFailures"),
    ],
)
def test_session_that_does_not_retry_tasks_is_named(
    master: str, failures: str, advice: str
) -> None:
    assert advice in (session._retries(master, failures) or "")


@pytest.mark.parametrize("master", ["local[*,4]", "local[2, 3]", "spark://host:7077"])
def test_session_that_retries_tasks_passes(master: str) -> None:
    assert session._retries(master, "4") is None


def test_loopback_is_for_local_masters_only() -> None:
    assert "spark.driver.host" in session._settings("local[2]", {})
    assert "spark.driver.host" not in session._settings("spark://host:7077", {})


def test_given_settings_win_and_java_options_are_kept() -> None:
    settings = session._settings(
        "local[2]",
        {"spark.ui.enabled": "true", "spark.driver.extraJavaOptions": "-Dx=1"},
    )

    assert settings["spark.ui.enabled"] == "true"
    assert settings["spark.driver.extraJavaOptions"].startswith("-Dx=1 -Dlog4j2.")


def test_logging_that_the_user_set_up_is_kept() -> None:
    mine = "-Dlog4j2.configurationFile=mine.properties"

    assert session._quiet(mine) == mine
