"""The commands on sessions and services: connection, clients, transactions, configuration, admin.

A command is ``def hello(call: Call, session: Session, services: Services) -> Wait | None`` and follows the
rules of `headwater.commands.call`. Its declaration in the command table names its function:
``run="server:connection.hello"``.
"""

from __future__ import annotations

from collections.abc import Callable

from headwater.commands.call import Call, Wait
from headwater.commands.functions import functions_of
from headwater.server.services.services import Services
from headwater.server.session.session import Session

ServerFunction = Callable[[Call, Session, Services], Wait | None]

SERVER_FUNCTIONS: dict[bytes, ServerFunction] = functions_of(
    "headwater.server.commands", on_session=True
)
"""The functions of the commands on sessions and services, by name: ``HELLO``, ``CLIENT|LIST``."""
