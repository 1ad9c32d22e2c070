"""Applies changes of users to open connections.

Rule 1. Connections of a deleted user are closed. Connections of a disabled user remain open, but the user cannot
        authenticate again.
Rule 2. A connection is closed if it is subscribed to a channel for which its user no longer has
        permission.
Rule 3. A change of `AccessControl.open` also applies to open connections that have not
        authenticated, from their next request on.

Source: Redis, acl.c, ACLFreeUserAndKillClients, ACLKillPubsubClientsIfNeeded; server.c, authRequired.
"""

from __future__ import annotations

from collections.abc import Iterable

from headwater.server.services.acl.access import AccessControl
from headwater.server.session.clients import Clients
from headwater.server.session.session import Session
from headwater.server.session.user import User, channel_fits


class AccessChanges:
    """Changes users on behalf of ``requester``, the session that requested the change."""

    def __init__(self, access: AccessControl, clients: Clients, requester: Session) -> None:
        self._access = access
        self._clients = clients
        self._requester = requester

    def set_user(self, made: User) -> None:
        """Apply a changed user."""
        user = self._access.users.get(made.name)
        if user is not None:
            self._drop_subscribers({user: made})
        user = self._access.put(made)
        if user is self._access.default:
            open_or_close(self._access, self._clients)

    def delete_user(self, user: User) -> None:
        """Delete a user and close its connections."""
        self._access.remove(user)
        self._disconnect_users([user])

    def replace_users(self, users: dict[bytes, User]) -> None:
        """Set all users (ACL LOAD)."""
        access = self._access
        changes = {access.users[name]: made for name, made in users.items() if name in access.users}
        self._drop_subscribers(changes)
        self._disconnect_users(access.replace_all(users))
        open_or_close(access, self._clients)

    def _disconnect_users(self, users: Iterable[User]) -> None:
        gone = {id(user) for user in users}
        for victim in [one for one in self._clients.sessions.values() if id(one.user) in gone]:
            self._disconnect(victim)

    def _drop_subscribers(self, changes: dict[User, User]) -> None:
        """Close connections with subscriptions for which the changed user has no permission."""
        for victim in list(self._clients.sessions.values()):
            made = changes.get(victim.user)
            if made is None or any(selector.all_channels for selector in made.selectors):
                continue
            allowed = {channel: None for one in made.selectors for channel in one.channels}
            names = subscriptions(victim)
            if not all(channel_fits(allowed, name, pattern=pattern) for name, pattern in names):
                self._disconnect(victim)

    def _disconnect(self, victim: Session) -> None:
        """Close a connection: the requester's after its reply, others now."""
        victim.log_in(self._access.default, authenticated=False, may_run_commands=self._access.open)
        victim.closing = True
        if victim is not self._requester:
            victim.tell()


def open_or_close(access: AccessControl, clients: Clients) -> None:
    """Allow or forbid connections to run commands without authentication (rule 3)."""
    may_run_commands = access.open
    for session in clients.sessions.values():
        session.scanner.authenticated = session.authenticated or may_run_commands


def subscriptions(session: Session) -> list[tuple[bytes, bool]]:
    """Return the subscriptions of a session: channels and patterns, each with True if it is a pattern."""
    own = session.subscriptions
    channels = [(name, False) for name in (*own.channels, *own.shard_channels)]
    return channels + [(pattern, True) for pattern in own.patterns]
