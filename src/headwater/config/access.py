"""Settings of users and their permissions."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from headwater.common import limits
from headwater.config.kinds import FilePath
from headwater.config.setting import AT_START, setting


@dataclass(kw_only=True)
class AccessConfig:
    """Settings of users, passwords and the channels that users may access."""

    requirepass: str = setting("", "Password of the user `default`; empty for none.", secret=True)
    aclfile: str = setting(
        "",
        "File of users for ACL LOAD and ACL SAVE; empty for none.",
        kind=FilePath(),
        fixed_after_start=AT_START,
    )
    acl_pubsub_default: Literal["allchannels", "resetchannels"] = setting(
        "resetchannels", "Channels of a new user: all (allchannels) or none (resetchannels)."
    )
    acllog_max_len: int = setting(limits.ACL_LOG_LENGTH, "Maximum number of entries of ACL LOG.")
    protected_mode: bool = setting(
        True, "Accept only local clients while the user `default` has no password."
    )
    users: tuple[tuple[str, ...], ...] = field(default=(), repr=False)
    """The ``user`` lines, each split into the user's name and rules (`headwater.server.services.acl.access`)."""
