"""Measures the Spark source and its peers in the same run."""
