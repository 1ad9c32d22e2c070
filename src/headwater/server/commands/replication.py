"""ROLE, REPLICAOF and SLAVEOF; REPLCONF and HWSYNC, which replicas send; PSYNC and SYNC, which are refused.

Source: redis.io/commands; Redis, replication.c. HWSYNC: docs/adr/0071-replication-link.md.
"""

from __future__ import annotations

from math import inf
from typing import NamedTuple

from headwater.commands.call import SYNTAX, Call, shown
from headwater.engine.keyspace.keyspace import Keyspace
from headwater.errors import CommandError
from headwater.server.services.replication.link import LINK_VERSION
from headwater.server.services.replication.replication import UNBLOCKED
from headwater.server.services.services import Services
from headwater.server.services.timers import SEEN_BYTES, record_unseen
from headwater.server.session.session import Session

_BAD_PORT = "ERR Invalid master port"


def role(call: Call, session: Session, services: Services) -> None:
    """ROLE: ``master``, the offset, the replicas; or ``slave``, the primary, the state of the link, the offset."""
    replication = services.replication
    primary = replication.primary
    if primary is not None:
        state = primary.state
        call.reply.value(["slave", primary.host, primary.port, state, replication.offset])
        return
    replicas = [
        [one.address, str(one.port), str(max(0, one.acked))]
        for one in replication.replicas.by_session.values()
        if one.syncing
    ]
    call.reply.value(["master", replication.offset, replicas])


def replicaof(call: Call, session: Session, services: Services) -> None:
    """REPLICAOF host port: follow a primary. REPLICAOF NO ONE: be one."""
    arguments, replication = call.arguments, services.replication
    if arguments.token(1) == b"NO" and arguments.token(2) == b"ONE":
        replication.promote()
        call.reply.ok()
        return
    port = arguments.integer(2, error=_BAD_PORT)
    if not 0 <= port <= 65535:
        raise CommandError(_BAD_PORT)
    host = arguments.bytes(1).decode("utf-8", "surrogateescape")
    primary = replication.primary
    if primary is not None and (primary.host.lower(), primary.port) == (host.lower(), port):
        call.reply.simple(b"OK Already connected to specified master")
        return
    if primary is None:
        services.blocked.end_all(UNBLOCKED)
        write_seen(services.keyspace, call)
    replication.follow(host, port)
    call.reply.ok()


def write_seen(keyspace: Keyspace, call: Call) -> None:
    """Record the seen times that no fact has: the last change that this server makes by itself."""
    call.admit(SEEN_BYTES * sum(map(len, keyspace.unseen.values())))
    record_unseen(keyspace)


def replconf(call: Call, session: Session, services: Services) -> None:
    """REPLCONF option value …: what a replica says of itself. ACK has no reply."""
    arguments = call.arguments
    if arguments.count % 2 == 0:
        raise CommandError(SYNTAX)
    for index in range(1, arguments.count, 2):
        option = arguments.token(index)
        if option == b"ACK":
            _acknowledged(call, session, services, index)
            return
        replica = services.replication.replicas.of(session)
        if option == b"LISTENING-PORT":
            replica.port = arguments.integer(index + 1)
        elif option == b"IP-ADDRESS":
            replica.address = arguments.bytes(index + 1)[:255].decode("utf-8", "surrogateescape")
        elif option == b"MAY-LACK":
            replica.may_lack = arguments.bytes(index + 1) == b"yes"
        elif option not in {b"CAPA", b"VERSION", b"RDB-ONLY", b"RDB-FILTER-ONLY"}:
            typed = shown(arguments.bytes(index))
            raise CommandError(f"ERR Unrecognized REPLCONF option: {typed}")
    call.reply.ok()


def _acknowledged(call: Call, session: Session, services: Services, index: int) -> None:
    """REPLCONF ACK offset [FACK offset]."""
    arguments, replicas = call.arguments, services.replication.replicas
    if session not in replicas.by_session:
        return
    durable = -1
    if arguments.count > index + 3 and arguments.token(index + 2) == b"FACK":
        durable = arguments.integer(index + 3)
    replicas.acknowledged(session, arguments.integer(index + 1), durable)
    services.replication.held.release()
    services.replication.gathered()
    for waiting, (wait, _offset) in list(replicas.waiting.items()):
        if services.blocked.waits(waiting, wait):
            services.blocked.run_again(waiting)
        if not services.blocked.waits(waiting, wait):
            del replicas.waiting[waiting]


def failover(call: Call, session: Session, services: Services) -> None:
    """FAILOVER [TO host port [FORCE]] [ABORT] [TIMEOUT ms]: hand over to a replica that has everything."""
    arguments, replication = call.arguments, services.replication
    if arguments.count == 2 and arguments.token(1) == b"ABORT":
        if replication.failover is None:
            raise CommandError("ERR No failover in progress.")
        replication.end_failover("FAILOVER ABORT")
        call.reply.ok()
        return
    options = _failover_options(call)
    if replication.failover is not None:
        raise CommandError("ERR FAILOVER already in progress.")
    if replication.primary is not None:
        raise CommandError("ERR FAILOVER is not valid when server is a replica.")
    replicas = [one for one in replication.replicas.by_session.values() if one.syncing]
    if not replicas:
        raise CommandError("ERR FAILOVER requires connected replicas.")
    if options.force and (options.host is None or not options.timeout_ms):
        raise CommandError(
            "ERR FAILOVER with force option requires both a timeout and target HOST and IP."
        )
    target = None
    if options.host is not None:
        named = [one for one in replicas if (one.address, one.port) == (options.host, options.port)]
        if not named:
            raise CommandError("ERR FAILOVER target HOST and PORT is not a replica.")
        target = named[0]
        if target.state != "online":
            raise CommandError("ERR FAILOVER target replica is not online.")
    services.blocked.end_all(UNBLOCKED)
    write_seen(services.keyspace, call)
    seconds = options.timeout_ms / 1000 if options.timeout_ms else inf
    replication.begin_failover(target, services.times.monotonic() + seconds, force=options.force)
    call.reply.ok()


class _Options(NamedTuple):
    """The options of FAILOVER."""

    host: str | None
    port: int
    force: bool
    timeout_ms: int


def _failover_options(call: Call) -> _Options:
    arguments = call.arguments
    host, port, force, timeout_ms = None, 0, False, 0
    index = 1
    while index < arguments.count:
        option, left = arguments.token(index), arguments.count - index - 1
        if option == b"TIMEOUT" and left >= 1 and not timeout_ms:
            timeout_ms = arguments.integer(index + 1)
            if timeout_ms <= 0:
                raise CommandError("ERR FAILOVER timeout must be greater than 0")
            index += 2
        elif option == b"TO" and left >= 2 and host is None:
            host = arguments.bytes(index + 1).decode("utf-8", "surrogateescape")
            port = arguments.integer(index + 2)
            index += 3
        elif option == b"FORCE" and not force:
            force = True
            index += 1
        else:
            raise CommandError(SYNTAX)
    return _Options(host, port, force, timeout_ms)


def hwsync(call: Call, session: Session, services: Services) -> None:
    """HWSYNC version history offset [FAILOVER | TAIL]: follow this server from a state on. Everything after the reply is record
    groups. With FAILOVER, the sender is this replica's primary, and this server takes over. With TAIL, the sender was
    promoted, and takes over what this replica has more."""
    arguments, replication = call.arguments, services.replication
    version = arguments.integer(1)
    if version != LINK_VERSION:
        raise CommandError(
            f"ERR the replica speaks version {version} of the link, and this server {LINK_VERSION}: upgrade the older "
            "one, replicas first"
        )
    history, offset = arguments.bytes(2).decode("ascii", "replace"), arguments.integer(3)
    word = arguments.token(4) if arguments.count == 5 else b""
    included = replication.history.includes(history, offset, replication.offset)
    if word == b"FAILOVER":
        if replication.primary is None or not included:
            raise CommandError("ERR PSYNC FAILOVER replid must match my replid.")
        replication.promote(successor=session)
    if word == b"TAIL":
        if not included:
            raise CommandError("ERR this server does not have the state from which you continue")
    elif replication.primary is not None and replication.primary.state != "connected":
        raise CommandError("NOMASTERLINK Can't SYNC while not connected with my master")
    replica = replication.replicas.of(session)
    if replica.syncing:
        raise CommandError("ERR this connection is a replica's already")
    if replication.lacks(replica, history, offset):
        raise CommandError(
            "NOMASTERLINK this server was promoted, and takes over what the replica has more"
        )
    if replication.gathers and not included:
        raise CommandError(
            "NOMASTERLINK this server was promoted, and sends no copies before its replicas are back"
        )
    session.client.role = "S"
    replication.replicas.begin(session, replication.journal, replication.history, history, offset)
    session.reply_mode = "off"


def psync(call: Call, session: Session, services: Services) -> None:
    """PSYNC, SYNC: refused. A replica of this server is a Headwater server too."""
    raise CommandError(
        "ERR replicas of Headwater are Headwater servers; `headwater copy` copies keys to Redis and Valkey"
    )
