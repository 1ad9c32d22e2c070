"""The option ``delete=True`` of a consumer: delete entries that every group has acknowledged.

Rule 1. An entry is deleted in one step with its acknowledgement, and only if no group of the stream still
        has it pending or has yet to read it. So the last group to acknowledge the entry deletes it.
Rule 2. A server without XDELEX (Redis before 8.2, Valkey) cannot check the other groups. There, an entry is
        deleted only if its stream has no other group.
"""

from __future__ import annotations

from headwater.common.names import text_of
from headwater.errors import DeclarationError
from headwater.groups.membership.member import Member
from headwater.groups.protocol.operation import Operation, Refused, mapping


def check_deleting(member: Member) -> Operation[None]:
    """Raise `DeclarationError` if the server could never delete entries of the member's stream."""
    if member.able.deletes_acked:
        return
    replies = yield [["XINFO", "GROUPS", member.stream]]
    if isinstance(replies[0], Refused):
        return
    names = [text_of(mapping(one)[b"name"]) for one in replies[0]]
    others = [name for name in names if name != member.group]
    if others:
        raise DeclarationError(
            f"delete=True: stream {member.stream!r} has the groups {', '.join(others)} besides "
            f"{member.group!r}, and {member.able.server} cannot tell whether these have acknowledged an "
            "entry. Use Redis 8.2 or Headwater, or trim the stream by maxlen= instead."
        )
