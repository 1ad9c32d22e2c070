"""What is measured and shown: counters, INFO, slow log, latency, MONITOR."""
