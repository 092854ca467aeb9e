"""PySpark in our words: sessions, types, plans, errors across the JVM."""
