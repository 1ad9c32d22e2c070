"""A program for each peer. Each runs in an environment that has the peer and not Headwater."""
