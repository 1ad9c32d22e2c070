"""What a change of users does to connections that are there.

Rule 1. Who was deleted is disconnected. Who was switched off stays, and cannot authenticate again.
Rule 2. Who subscribes to a channel that its user may no longer hear is disconnected.
Rule 3. Whether strangers are let in (`AccessControl.open`) holds for who is connected and has not
        authenticated too, from its next request on.

Source: Redis, acl.c, ACLFreeUserAndKillClients, ACLKillPubsubClientsIfNeeded; server.c, authRequired.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from headwater.server.session.user import User, channel_fits

if TYPE_CHECKING:
    from headwater.server.session.session import Session
    from headwater.server.turn.node import Node


def set_user(node: Node, made: User, session: Session | None = None) -> None:
    """Put a changed user in force; ``session`` is the one that asked for it."""
    user = node.access.users.get(made.name)
    if user is not None:
        _drop_subscribers(node, {user: made}, session)
    user = node.access.put(made)
    if user is node.access.default:
        open_or_close(node)


def delete_user(node: Node, user: User, session: Session | None = None) -> None:
    """Take a user away, and its connections."""
    del node.access.users[user.name]
    _disconnect_users(node, [user], session)


def replace_users(node: Node, users: dict[bytes, User], session: Session | None = None) -> None:
    """Let these be all users: ACL LOAD."""
    access = node.access
    changes = {access.users[name]: made for name, made in users.items() if name in access.users}
    _drop_subscribers(node, changes, session)
    _disconnect_users(node, access.replace_all(users), session)
    open_or_close(node)


def open_or_close(node: Node) -> None:
    """Tell every connection whether it has to authenticate (rule 3)."""
    let_in = node.access.open
    for session in node.sessions.values():
        session.scanner.authenticated = session.authenticated or let_in


def disconnect(victim: Session, session: Session | None) -> None:
    """End a connection: that of ``session`` behind its reply, another one now."""
    victim.log_in(victim.node.access.default, authenticated=False)
    victim.closing = True
    if victim is not session:
        victim.tell()


def _disconnect_users(node: Node, users: Iterable[User], session: Session | None) -> None:
    gone = {id(user) for user in users}
    for victim in [one for one in node.sessions.values() if id(one.user) in gone]:
        disconnect(victim, session)


def _drop_subscribers(node: Node, changes: dict[User, User], session: Session | None) -> None:
    """Disconnect who listens where its user, as it will be, may not."""
    for victim in list(node.sessions.values()):
        made = changes.get(victim.user)
        if made is None or any(selector.all_channels for selector in made.selectors):
            continue
        allowed = {channel: None for selector in made.selectors for channel in selector.channels}
        heard = subscriptions(victim)
        if not all(channel_fits(allowed, name, pattern=pattern) for name, pattern in heard):
            disconnect(victim, session)


def subscriptions(session: Session) -> list[tuple[bytes, bool]]:
    """The channels and patterns that a session listens to, each with whether it is a pattern."""
    own = session.subscriptions
    channels = [(name, False) for name in (*own.channels, *own.shard_channels)]
    return channels + [(pattern, True) for pattern in own.patterns]
