"""The stateless part of a stage, as Spark DataFrames."""
