"""Measurements and their display: statistics, INFO, slow log, latency, MONITOR."""
