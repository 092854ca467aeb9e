from __future__ import annotations

from riverlock.replay.comparison import Entries, compare_state, state_changes


def _entries(data: dict[str, float]) -> Entries:
    row = {"key_group": 3, "key": {"user": "ann"}, "entry": "values", "variable": None}
    return {b"ann": {**row, "deleted": False, "data": data}}


def test_the_order_of_columns_means_nothing() -> None:
    stored, replayed = {"orders": 2, "spent": 7.5}, {"spent": 7.5, "orders": 2}

    compared = compare_state("totals", _entries(stored), _entries(replayed))

    assert compared.matches
    assert compared.recorded == compared.replayed
    assert not list(state_changes("totals", _entries(stored), _entries(replayed)))


def test_another_value_differs_and_is_shown_in_the_same_order() -> None:
    stored, replayed = {"orders": 2, "spent": 7.5}, {"spent": 8.0, "orders": 2}

    compared = compare_state("totals", _entries(stored), _entries(replayed))
    (change,) = state_changes("totals", _entries(stored), _entries(replayed))

    assert compared.groups == (3,)
    assert list(change.before) == list(change.after) == ["orders", "spent"]
