"""Finds the keyspace of one of its parts, for tests that check the whole keyspace."""

from __future__ import annotations

from headwater.engine.groups.group import ConsumerGroup
from headwater.engine.keyspace.database import Database
from headwater.engine.keyspace.keyspace import Keyspace
from headwater.engine.streams.stream import StoredStream


def keyspace_of(part: Database | StoredStream | ConsumerGroup) -> Keyspace:
    """Return the keyspace that ``part`` belongs to."""
    assert isinstance(part.keyspace, Keyspace)
    return part.keyspace


def database_of(stream: StoredStream) -> Database:
    """Return the database that ``stream`` is in."""
    return keyspace_of(stream).databases[stream.db.index]
