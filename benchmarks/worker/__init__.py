"""The worker framework and its peers, measured in one run; imports nothing, since the peers' own
environments do not have Headwater."""
