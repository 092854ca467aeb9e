from __future__ import annotations

import subprocess
import sys
from dataclasses import fields
from typing import Any

import pytest

import riverlock as rl
from riverlock.driver.run_options import RunKeywords, RunOptions, chosen

NAMES = {f.name for f in fields(RunOptions)}


def test_keywords_for_editors_are_the_options() -> None:
    assert set(RunKeywords.__annotations__) == NAMES


def test_run_documents_every_option() -> None:
    told = rl.Flow.run.__doc__ or ""

    assert {name for name in NAMES if f"``{name}``" not in told} == set()


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("availableNow", "available_now"),
        ("available_no", "available_now"),
        ("maxRowsPerEpoch", "max_rows_per_epoch"),
        ("paralellism", "parallelism"),
    ],
)
def test_an_unknown_option_is_told_with_the_nearest_name(
    written: str, meant: str
) -> None:
    wrong: dict[str, Any] = {written: True}

    with pytest.raises(rl.errors.InvalidConfigError) as caught:
        chosen(wrong)  # type: ignore[arg-type]

    assert caught.value.found == f"{written}="
    assert caught.value.hint == f"did you mean {meant}=?"


def test_an_option_like_no_other_is_told_with_all_names() -> None:
    wrong: dict[str, Any] = {"zzz": True}

    with pytest.raises(rl.errors.InvalidConfigError) as caught:
        chosen(wrong)  # type: ignore[arg-type]

    assert caught.value.hint == ""
    assert "available_now" in caught.value.expected


def test_names_for_annotations_load_no_pyspark() -> None:
    names = "rl.Handle, rl.Status, rl.Replay, rl.RunKeywords, rl.Context, rl.errors"
    code = f"import sys, riverlock as rl; {names}; assert 'pyspark' not in sys.modules"

    subprocess.run([sys.executable, "-c", code], check=True)
