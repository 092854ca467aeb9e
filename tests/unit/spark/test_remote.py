"""What Spark raises becomes an error that says what happened."""

from __future__ import annotations

import pytest
from py4j.protocol import Py4JNetworkError

from riverlock.core.errors import EpochAbortedError
from riverlock.spark.remote import explained


@pytest.mark.parametrize(
    "error",
    [
        ConnectionRefusedError(111, "Connection refused"),
        Py4JNetworkError("Answer from Java side is empty"),
    ],
)
def test_a_virtual_machine_that_is_gone_is_named(error: Exception) -> None:
    found = explained(error, stage="count", epoch=4)

    assert isinstance(found, EpochAbortedError)
    assert "JVM" in str(found)
