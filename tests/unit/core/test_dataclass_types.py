from __future__ import annotations

import subprocess
import sys
from pathlib import Path

_SCRIPT = """
from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from datetime import datetime

from pyspark import cloudpickle

import riverlock as rl


@dataclass
class Base:
    at: datetime


@dataclass
class Payment(Base):
    cents: int | None = None


class Recent(rl.Process):
    recent = rl.List(Payment)


worker = '''
import pickle, sys
from datetime import UTC, datetime
from riverlock.state.codec import codec_of, encode
found = pickle.load(sys.stdin.buffer)
codec = codec_of(found.recent.type)
at = codec.normalise({"at": datetime(2026, 1, 1, tzinfo=UTC)})
print(codec.decoder()(encode(at)))
'''
sent = cloudpickle.dumps(Recent)
subprocess.run([sys.executable, "-c", worker], input=sent, check=True)
"""


def test_dataclass_of_a_script_is_understood_in_a_worker(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(_SCRIPT)

    found = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, check=False
    )

    assert found.returncode == 0, found.stderr
    assert "cents=None" in found.stdout
