"""``make bench-storage``: starts, replay, checkpoints, cold data and disk space, compared with peers in the same
run."""
