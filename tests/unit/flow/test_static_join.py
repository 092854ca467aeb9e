from __future__ import annotations

import pytest

import riverlock as rl
from riverlock.core.errors import InvalidFlowError


def test_arguments_of_a_static_join_are_checked() -> None:
    source = rl.sources.files("nowhere", format="json", schema="user string")
    orders = rl.Flow("static").read(source)

    with pytest.raises(InvalidFlowError, match="did you mean 'user'"):
        orders.join_static(None, on="usr")
    with pytest.raises(InvalidFlowError, match="names of columns"):
        orders.join_static(None, on=[])
    with pytest.raises(InvalidFlowError, match="inner or left"):
        orders.join_static(None, on="user", how="right")
