"""One turn: `node` serves sessions and commits, `execution` runs one request."""
