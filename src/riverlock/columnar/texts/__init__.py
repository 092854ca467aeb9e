"""Text as Spark reads and writes it: numbers, truths, dates and times."""
