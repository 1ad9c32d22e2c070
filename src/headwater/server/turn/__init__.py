"""Executes turns: `node` serves sessions and commits, `execution` runs one request."""
