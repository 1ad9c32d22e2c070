"""Worked pipelines on real data; README.md says how each is run."""
