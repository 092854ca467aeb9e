"""Compiles what Spark has analysed into expressions that need no Spark.

See ``riverlock.columnar`` for what they are and how they are used.
"""

from riverlock.spark.columnar.compiler import compile_expressions
from riverlock.spark.columnar.plans import compile_steps

__all__ = ["compile_expressions", "compile_steps"]
