"""Runs tests of Redis and redis-py, unmodified, against Headwater and Redis 8.2.3, and compares test by test."""
