"""Columns that travel with the rows of a stream and that no user sees."""

from __future__ import annotations

__all__ = [
    "ALL",
    "BRANCH",
    "GAP",
    "GROUP",
    "HIDDEN",
    "INPUT",
    "MARK",
    "PART",
    "ROW",
    "ROWS",
    "SEQ",
    "SIDE",
    "SOURCE",
    "TIME",
    "WINDOW",
]

SEQ = "__rl_seq"  # position in the input: fixes the order of a key's records
TIME = "__rl_time"  # event time in microseconds
MARK = "__rl_mark"  # until when all rows are there, if not their times say it
PART = "__rl_part"  # partition of the input, if its watermark is kept per partition
SOURCE = "__rl_source"  # which event_time declaration the record came through
GROUP = "__rl_group"  # key group
BRANCH = "__rl_branch"  # which input of a union: decides between equal positions
SIDE = "__rl_side"  # of a two-input operator: 0 right, 1 left; comes before SEQ
INPUT = "__rl_input"  # 0 event, 1 broadcast, 2 initial state
WINDOW = "__rl_window"  # end of the pane that a row is in, in microseconds
ROW = "__rl_row"  # in a file by key group: its place as it was sent
ROWS = "__rl_rows"  # how many rows of the input a partial row stands for
ALL = "__rl_all"  # the key of what has none, always null
GAP = "__rl_gap"  # after a record, in microseconds, where sessions differ in it
HIDDEN = (
    *(SEQ, TIME, MARK, PART, SOURCE, BRANCH, SIDE, GROUP, INPUT, WINDOW, ROWS),
    *(ALL, GAP, ROW),
)
