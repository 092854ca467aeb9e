from __future__ import annotations

import subprocess
import sys

from riverlock.engines import running
from riverlock.flow.engine_door import Engines, engines


def test_what_answers_flows_has_all_that_they_ask_for() -> None:
    answers: Engines = running  # also for the type checker

    assert engines() is answers
    asked = [name for name in vars(Engines) if not name.startswith("_")]
    assert set(asked) <= set(running.__all__)


def test_nothing_is_loaded_before_a_flow_asks() -> None:
    code = """
import sys
from riverlock.flow.flow import Flow
Flow("any")
print([n for n in sys.modules if n.startswith("riverlock.engines")])
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )

    assert done.stdout == "[]\n"
