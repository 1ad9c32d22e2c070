"""Benchmarks of a primary with a replica."""
