"""Benchmarks: ratios between us and a peer or a baseline in the same run."""
