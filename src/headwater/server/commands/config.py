"""CONFIG: read and change settings at runtime."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headwater.commands.call import SYNTAX, Call
from headwater.commands.globs import matches
from headwater.common.limits import MAX_SETTING_BYTES
from headwater.config.config import LISTED, NAMES, Config, fixed_after_start
from headwater.config.inert import INERT
from headwater.config.rewriting import rewritten
from headwater.config.setting import AT_START, ONLY_AT_START, PROTECTED
from headwater.errors import CommandError, ConfigError, ListenError, NodePoisoned, StoreUnusable
from headwater.server.commands.debug import is_allowed
from headwater.server.log import apply_log_format, apply_loglevel
from headwater.server.replacement import replace_file
from headwater.server.services.acl.changes import open_or_close
from headwater.server.services.services import Services
from headwater.server.session.session import Session

if TYPE_CHECKING:
    import ssl


def config_get(call: Call, session: Session, services: Services) -> None:
    """CONFIG GET pattern …: names and values; a name without wildcards is returned as typed."""
    found: dict[str, str] = {}
    for typed in call.arguments.values(2):
        pattern = typed.lower()
        if any(byte in b"*?[" for byte in pattern):
            for name in LISTED:
                if matches(pattern, name.encode()):
                    found[name] = services.config.shown(name)
            continue
        name = pattern.decode("utf-8", "surrogateescape")
        if name in NAMES:
            found[typed.decode()] = services.config.shown(name)
    call.reply.map(len(found))
    for name, value in found.items():
        call.reply.bulk(name.encode())
        call.reply.bulk(value.encode("utf-8", "surrogateescape"))


def config_set(call: Call, session: Session, services: Services) -> None:
    """CONFIG SET name value …: change all named settings, or none of them if one is refused."""
    words = [word.decode("utf-8", "surrogateescape") for word in call.arguments.values(2)]
    if len(words) % 2:
        raise CommandError(SYNTAX)
    wanted: dict[str, str] = {}
    spelled = {}  # as the client wrote them
    for typed, value in zip(words[::2], words[1::2], strict=True):
        name = typed.lower()
        if name not in NAMES:
            raise CommandError(
                f"ERR Unknown option or number of arguments for CONFIG SET - '{typed}'"
            )
        if name in wanted:
            raise _failed(typed, "duplicate parameter")
        if len(value.encode("utf-8", "surrogateescape")) > MAX_SETTING_BYTES:
            raise _failed(name, f"a value has at most {MAX_SETTING_BYTES} bytes")
        wanted[name], spelled[name] = value, typed
    changed = services.config.copy()
    for name, value in wanted.items():
        reason = fixed_after_start(name)
        if reason == PROTECTED and is_allowed(services.config.enable_protected_configs, session):
            reason = "" if name in INERT else AT_START
        if reason and reason != ONLY_AT_START:
            raise _failed(spelled[name], reason)
        try:
            changed.set(name, value)
        except ValueError as error:
            raise _failed(name, str(error)) from None
        if reason and changed.get(name) != services.config.get(name):
            raise _failed(name, reason)
    if changed.keeps_data and services.storage.journal is None and not services.config.keeps_data:
        raise _failed("save", "this server started without a journal: restart it with save points")
    _put_in_force(services, changed, set(wanted))
    call.reply.ok()


def config_resetstat(call: Call, session: Session, services: Services) -> None:
    """CONFIG RESETSTAT: reset the counters of INFO."""
    services.traffic.reset(
        connections_seen=services.clients.connections_seen, turns=services.records.turn
    )
    services.observer.reset(expired=services.keyspace.expired_count)
    services.keyspace.hits = services.keyspace.misses = services.keyspace.freed_lazily = 0
    services.scripts.evicted = 0
    call.reply.ok()


def config_rewrite(call: Call, session: Session, services: Services) -> None:
    """CONFIG REWRITE: write the current settings to the configuration file."""
    if services.config.file is None:
        raise CommandError("ERR The server is running without a config file")
    try:
        users = (
            () if services.config.aclfile else services.access.lines(services.config.requirepass)
        )
        replace_file(services.config.file, rewritten(services.config, users=users))
    except OSError as error:
        raise CommandError(f"ERR Rewriting config file: {error.strerror}") from None
    except ConfigError as error:
        raise CommandError(f"ERR Rewriting config file: {error}") from None
    call.reply.ok()


def _failed(name: str, reason: str) -> CommandError:
    return CommandError(f"ERR CONFIG SET failed (possibly related to argument '{name}') - {reason}")


def _checked_tls(changed: Config, names: set[str]) -> ssl.SSLContext | None:
    """Return the TLS context for new connections; None if no TLS setting changes or no TLS listener exists.

    All files are read and checked together before anything changes. They are checked without a TLS
    listener too, because CONFIG REWRITE would save a mistake for the next start. Raises `CommandError`.
    """
    related = sorted(name for name in names if name.startswith("tls-"))
    if not related:
        return None
    from headwater.server.services.tls import check_files, make_context

    try:
        if changed.tls_port:
            return make_context(changed.located())
        check_files(changed.located())
    except ConfigError as error:
        text = str(error)
        named = [name for name in related if text.startswith(f"{name} ")]
        raise _failed((named or related)[0], text) from None
    return None


def _listen(services: Services, changed: Config, names: set[str]) -> None:
    """Listen on the changed port or addresses. Raises `CommandError` if that fails."""
    for name, text in (("port", "Unable to listen on this port"), ("bind", "Failed to bind")):
        if name in names:
            if services.rebind is None:
                raise _failed(name, AT_START)
            try:
                services.rebind(changed)
            except ListenError as error:
                raise _failed(name, f"{text}: {error}") from None
            return


def _put_in_force(services: Services, changed: Config, names: set[str]) -> None:
    """Apply the changed settings. Steps that can fail come first."""
    tls = _checked_tls(changed, names)
    journal = services.storage.journal
    if "appendfsync" in names and journal is not None and journal.failure is not None:
        raise _failed("appendfsync", journal.failure)
    _listen(services, changed, names)
    if "appendfsync" in names and journal is not None:
        try:
            journal.set_policy(changed.journal_policy)
        except (NodePoisoned, StoreUnusable) as error:
            raise _failed("appendfsync", str(error)) from None
    if tls is not None:
        services.clients.tls = tls
    services.adopt(changed)
    if "requirepass" in names:
        services.access.set_default_password(changed.requirepass)
        open_or_close(services.access, services.clients)
    if "loglevel" in names:
        apply_loglevel(changed)
    if "log-format" in names:
        apply_log_format(changed)
