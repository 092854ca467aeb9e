"""The user's own line in errors."""

from __future__ import annotations

import pytest

import riverlock as rl
from riverlock.core.errors import RiverlockError
from riverlock.core.user_lines import calling_line


def test_a_line_is_shown_without_what_may_be_secret() -> None:
    shown = [
        (calling_line(), "postgresql://me:s3cret@db/shop?sslpassword=s3cret"),
        (calling_line(), "https://hooks.example/services/T000/s3cret"),
        (calling_line(), {"sasl.password": "s3cret", "ssl.key.password": 's3cret "'}),
        (calling_line(), dict(api_token="s3cret", client_secret="s3cret")),  # noqa: C408
        (calling_line(), "sqlite:///shop.db"),
    ]

    assert not [line for line, _ in shown if "s3cret" in line]
    assert "https://***" in shown[1][0]
    assert "sqlite:///shop.db" in shown[-1][0]


def test_so_is_that_of_an_error() -> None:
    with pytest.raises(RiverlockError) as caught:
        rl.sinks.redis("redis://me:s3cret@h", key="k:{k}", shape="wrong")

    assert "test_user_lines.py" in str(caught.value)
    assert "s3cret" not in str(caught.value)
