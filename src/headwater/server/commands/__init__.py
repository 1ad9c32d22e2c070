"""What acts on sessions and on the node: connection, clients, transactions, configuration, admin.

A function is ``def hello(call: Call, session: Session, node: Node) -> None``; it keeps the rules of
`headwater.commands.call`. A subcommand's function stands under its container's name and its own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from headwater.commands.call import Call
from headwater.server.commands import (
    acl,
    admin,
    client,
    command,
    configuration,
    connection,
    transactions,
)

if TYPE_CHECKING:
    from headwater.server.node import Node
    from headwater.server.session import Session

ServerCommand = Callable[[Call, "Session", "Node"], None]

SERVER_FUNCTIONS: dict[bytes, ServerCommand] = {
    b"MULTI": transactions.multi,
    b"EXEC": transactions.exec_,
    b"DISCARD": transactions.discard,
    b"WATCH": transactions.watch,
    b"UNWATCH": transactions.unwatch,
    b"HELLO": connection.hello,
    b"AUTH": connection.auth,
    b"ACL|CAT": acl.acl_cat,
    b"ACL|DELUSER": acl.acl_deluser,
    b"ACL|DRYRUN": acl.acl_dryrun,
    b"ACL|GENPASS": acl.acl_genpass,
    b"ACL|GETUSER": acl.acl_getuser,
    b"ACL|LIST": acl.acl_list,
    b"ACL|LOAD": acl.acl_load,
    b"ACL|LOG": acl.acl_log,
    b"ACL|SAVE": acl.acl_save,
    b"ACL|SETUSER": acl.acl_setuser,
    b"ACL|USERS": acl.acl_users,
    b"ACL|WHOAMI": acl.acl_whoami,
    b"ACL|HELP": acl.acl_help,
    b"SELECT": connection.select,
    b"PING": connection.ping,
    b"ECHO": connection.echo,
    b"QUIT": connection.quit_,
    b"RESET": connection.reset,
    b"CLIENT|ID": client.client_id,
    b"CLIENT|INFO": client.client_info,
    b"CLIENT|LIST": client.client_list,
    b"CLIENT|KILL": client.client_kill,
    b"CLIENT|UNBLOCK": client.client_unblock,
    b"CLIENT|GETNAME": client.client_getname,
    b"CLIENT|SETNAME": client.client_setname,
    b"CLIENT|SETINFO": client.client_setinfo,
    b"CLIENT|REPLY": client.client_reply,
    b"CLIENT|NO-EVICT": client.client_switch,
    b"CLIENT|NO-TOUCH": client.client_switch,
    b"CLIENT|HELP": client.client_help,
    b"COMMAND": command.command,
    b"COMMAND|COUNT": command.command_count,
    b"COMMAND|INFO": command.command_info,
    b"COMMAND|DOCS": command.command_docs,
    b"COMMAND|LIST": command.command_list,
    b"COMMAND|GETKEYS": command.command_getkeys,
    b"COMMAND|GETKEYSANDFLAGS": command.command_getkeysandflags,
    b"COMMAND|HELP": command.command_help,
    b"CONFIG|GET": configuration.config_get,
    b"CONFIG|SET": configuration.config_set,
    b"CONFIG|RESETSTAT": configuration.config_resetstat,
    b"CONFIG|REWRITE": configuration.config_rewrite,
    b"CONFIG|HELP": configuration.config_help,
    b"INFO": admin.info,
    b"TIME": admin.time,
    b"SHUTDOWN": admin.shutdown,
}
