"""PySpark in our terms: sessions, types, plans, errors across the JVM."""
