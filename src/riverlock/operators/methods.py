"""The methods of keyed streams: those of every operator, each from its own module."""

from __future__ import annotations

from riverlock.operators.aggregates.agg_method import AggMethod
from riverlock.operators.by_key.count import CountMethod
from riverlock.operators.by_key.deduplicate import DeduplicateMethod
from riverlock.operators.by_key.map_with_state import MapWithStateMethod
from riverlock.operators.by_key.reduce import ReduceMethod
from riverlock.operators.by_key.running_count import RunningCountMethod
from riverlock.operators.by_key.sample import SampleMethod
from riverlock.operators.by_key.top import TopMethod
from riverlock.operators.by_key.update_state import UpdateStateMethod
from riverlock.operators.joins.join_methods import JoinMethods
from riverlock.operators.keyed.process_method import ProcessMethod
from riverlock.operators.match.match_operator import MatchMethod

__all__ = ["KeyedMethods"]


class KeyedMethods(
    ProcessMethod,
    AggMethod,
    CountMethod,
    RunningCountMethod,
    ReduceMethod,
    MapWithStateMethod,
    UpdateStateMethod,
    DeduplicateMethod,
    TopMethod,
    SampleMethod,
    MatchMethod,
    JoinMethods,
):
    """Everything that can be done with the records of each key."""
