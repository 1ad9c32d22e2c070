"""SLOWLOG: the latest commands that took at least ``slowlog-log-slower-than`` microseconds."""

from __future__ import annotations

from headwater.commands.call import Call
from headwater.commands.help import wrong_arguments
from headwater.errors import CommandError
from headwater.server.services.services import Services
from headwater.server.session.session import Session

_DEFAULT_COUNT = 10
_BAD_COUNT = "ERR count should be greater than or equal to -1"


def slowlog_get(call: Call, session: Session, services: Services) -> None:
    """SLOWLOG GET [count]: the newest entries first, 10 by default; -1 for all."""
    arguments = call.arguments
    count = _DEFAULT_COUNT
    if arguments.count > 3:
        raise wrong_arguments(arguments)
    if arguments.count == 3:
        count = arguments.integer(2, error=_BAD_COUNT)
        if count < -1:
            raise CommandError(_BAD_COUNT)
    call.reply.value(services.observer.slowlog.latest(count))


def slowlog_len(call: Call, session: Session, services: Services) -> None:
    """SLOWLOG LEN: the number of entries."""
    call.reply.integer(len(services.observer.slowlog))


def slowlog_reset(call: Call, session: Session, services: Services) -> None:
    """SLOWLOG RESET: remove all entries."""
    services.observer.slowlog.clear()
    call.reply.ok()
