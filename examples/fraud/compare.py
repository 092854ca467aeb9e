"""What the flow has made, next to what it should have made, as multisets of rows."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, DataFrameReader, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from examples.fraud.truth import expected
from riverlock.snapshot.catalog import Catalog
from riverlock.snapshot.state_reader import read_entries, read_variable
from riverlock.storage import LocalStorage


@dataclass(frozen=True, kw_only=True)
class Comparison:
    name: str
    expected: int
    found: int
    lost: int
    duplicated: int  # or not expected at all
    checksums: tuple[str, str]

    @property
    def is_equal(self) -> bool:
        same = self.checksums[0] == self.checksums[1]
        return same and self.lost == self.duplicated == 0


def manifests(store: Path) -> list[dict[str, Any]]:
    """Return the manifests of all epochs: the first line of each file is JSON."""
    found = sorted(store.glob("regions/main/epochs/*.json"))
    return [json.loads(p.read_bytes().partition(b"\n")[0]) for p in found]


def compare(spark: SparkSession, store: Path, out: Path, rows: int) -> list[Comparison]:
    """Compare every sink and all state with the independent computation."""
    ranges = [(m["epoch"], m["inputs"]["payments"]) for m in manifests(store)]
    epochs = [(e, r["start"]["row"], r["end"]["row"]) for e, r in ranges]
    truth = expected(spark, rows, epochs)
    made = {
        **_sinks(spark, out, {n: t.schema for n, t in truth.items()}),
        **_state(spark, store),
    }
    return [_compare(name, table, made[name]) for name, table in truth.items()]


def _compare(name: str, truth: DataFrame, made: DataFrame) -> Comparison:
    columns = truth.columns
    made = made.select(*(F.col(f.name).cast(f.dataType) for f in truth.schema.fields))
    both = truth.withColumn("n", F.lit(1)).unionAll(made.withColumn("n", F.lit(-1)))
    counted = both.groupBy(*columns).agg(
        F.sum("n").alias("missing"),
        F.sum(F.when(F.col("n") > 0, 1).otherwise(0)).alias("expected"),
        F.sum(F.when(F.col("n") < 0, 1).otherwise(0)).alias("found"),
    )
    # A sum of hashes does not depend on the order of rows, but on how often each comes.
    hashed = F.xxhash64(*columns).cast("decimal(38,0)")
    row = counted.agg(
        F.sum("expected"),
        F.sum("found"),
        F.sum(F.greatest("missing", F.lit(0))),
        F.sum(F.greatest(-F.col("missing"), F.lit(0))),
        F.sum(hashed * F.col("expected")),
        F.sum(hashed * F.col("found")),
    ).first()
    assert row is not None
    numbers = [int(value or 0) for value in row]
    return Comparison(
        name=name,
        expected=numbers[0],
        found=numbers[1],
        lost=numbers[2],
        duplicated=numbers[3],
        checksums=(f"{numbers[4] % 2**64:016x}", f"{numbers[5] % 2**64:016x}"),
    )


def _sinks(
    spark: SparkSession, out: Path, schemas: dict[str, StructType]
) -> dict[str, DataFrame]:
    """Read the sinks' folders as any reader would; ``epoch`` is a partition."""

    def read(name: str) -> DataFrameReader:
        return spark.read.schema(schemas[name])

    return {
        "alerts": read("alerts").json(f"{out}/alerts"),
        "odd": read("odd").option("header", "true").csv(f"{out}/odd"),
        "sessions": read("sessions").parquet(f"{out}/sessions"),
        "merchants": read("merchants").parquet(f"{out}/merchants"),
    }


def _state(spark: SparkSession, store: Path) -> dict[str, DataFrame]:
    """Read the state at the newest epoch from its Parquet files."""
    catalog = Catalog(LocalStorage(store))
    newest = catalog.resolve(None)
    tables = {}
    for uid, state in newest.operators.items():
        entries = read_entries(catalog.storage, state, now_us=newest.now_us)
        assert entries is not None
        tables[uid] = entries

    velocity = newest.operators["velocity"]
    recent = read_variable(tables["velocity"], velocity, "recent")
    payment = recent["value"].combine_chunks()
    timers = read_variable(tables["velocity"], velocity, "timers")
    found = {
        "state: open sessions": _values(tables["velocity"]),
        "state: recent payments": pa.table(
            {
                "card": recent["card"],
                "at": pc.struct_field(payment, "at"),
                "cents": pc.struct_field(payment, "cents"),
            }
        ),
        "state: pending timers": timers,
        "state: merchant totals": _values(tables["merchants"]),
    }
    return {name: spark.createDataFrame(table) for name, table in found.items()}


def _values(entries: pa.Table) -> pa.Table:
    """Return key columns and values of the keys as one flat table."""
    rows = entries.filter(pc.field("entry") == "values")
    columns = {}
    for name in ("key", "data"):
        struct = rows[name].combine_chunks()
        for f in struct.type:
            if not pa.types.is_struct(f.type):
                columns[f.name] = pc.struct_field(struct, f.name)
    return pa.table(columns)
