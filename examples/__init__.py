"""Example pipelines on real data; README.md shows how to run each."""
