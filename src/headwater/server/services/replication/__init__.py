"""Replication: the role of a node, its link to a primary, and the replicas that follow it.

A primary passes on the record groups of its turns; `headwater.server.turn.following` applies them on a replica, and
`headwater.server.net.follower` holds the connection. docs/adr/0071-replication-link.md has the reasons.
"""
