"""The clients for threads: subclasses of redis-py's classes."""
