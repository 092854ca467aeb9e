from __future__ import annotations

from datetime import UTC, datetime

import pytest

from riverlock.core.types import schema_of
from riverlock.core.values.record import record_class, record_maker


def test_record_has_columns_as_attributes_and_items() -> None:
    record = record_class(schema_of("user string, amount double"))("ann", 1.5)

    assert (record.user, record["amount"]) == ("ann", 1.5)  # type: ignore[attr-defined]
    assert list(record) == ["ann", 1.5]
    assert record.as_dict() == {"user": "ann", "amount": 1.5}
    assert repr(record) == "Record(user='ann', amount=1.5)"


def test_record_keeps_columns_whose_names_python_cannot_have() -> None:
    schema = schema_of("class int, `odd name` int, as_dict int, ok int")
    record = record_class(schema)(1, 2, 3, 4)

    assert [record["class"], record["odd name"], record["as_dict"]] == [1, 2, 3]
    assert record.as_dict() == {"class": 1, "odd name": 2, "as_dict": 3, "ok": 4}


def test_record_makes_datetimes_when_they_are_read() -> None:
    schema = schema_of("at timestamp, local timestamp_ntz, none timestamp")
    record = record_class(schema)(1, 1, None)

    assert record["at"] == datetime(1970, 1, 1, 0, 0, 0, 1, tzinfo=UTC)
    assert record["local"] == datetime(1970, 1, 1, 0, 0, 0, 1)  # noqa: DTZ001
    assert record["none"] is None


def test_record_maker_takes_values_as_they_are_read() -> None:
    schema = schema_of("at timestamp, local timestamp_ntz, none timestamp, n int")
    local = datetime(2026, 1, 1, 12, 30, 0, 1)  # noqa: DTZ001
    values = [local.replace(tzinfo=UTC), local, None, 3]

    assert list(record_maker(schema)(values)) == values


def test_record_names_the_columns_there_are() -> None:
    record = record_class(schema_of("user string"))("ann")

    with pytest.raises(KeyError, match="only user"):
        record["usr"]


def test_record_class_is_made_once_per_schema() -> None:
    assert record_class(schema_of("a int")) is record_class(schema_of("a int"))
