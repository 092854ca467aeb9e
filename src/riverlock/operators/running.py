"""The one way in which tasks run operators, of whatever kind."""

from __future__ import annotations

from typing import TYPE_CHECKING

from riverlock.operators.base import BuiltIn
from riverlock.operators.keyed.key_by_key import run_key_by_key

if TYPE_CHECKING:
    from riverlock.operators.base import Work
    from riverlock.operators.effects import Effects

__all__ = ["run_operator"]


def run_operator(work: Work) -> Effects:
    """Run an operator over the input of one task and epoch.

    Raises:
        RiverlockError: See ``BuiltIn.run``.
    """
    process = work.program.process
    # A user's process has no say in how it is run: its methods may have any names.
    return process.run(work) if isinstance(process, BuiltIn) else run_key_by_key(work)
