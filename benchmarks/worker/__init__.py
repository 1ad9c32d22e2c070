"""Measures the worker framework and its peers in the same run. Imports nothing, because the peers'
environments do not have Headwater."""
