"""``flow.sql``: queries over streams.

Spark parses the text; its tree is cut where state begins. What is below, between and
above the aggregates are stateless stages that Spark runs; the aggregates are our own.
"""

from riverlock.engines.jobs.sql.query import translate

__all__ = ["translate"]
