"""Which workers of a group hang, as they say themselves.

Rule. A worker whose slots are all busy with handlers that do not end writes it every two seconds into the hash
      ``{stream}:hw:hung:<group>``, consumer → sentence. The hash expires soon after they have stopped.
"""

from __future__ import annotations

from headwater.groups.member import Member
from headwater.groups.operation import Operation, Refused, mapping
from headwater.messages import hung_key

KEPT_MS = 10_000


def write_hung(member: Member, sentence: str) -> Operation[None]:
    """Write why this consumer hangs, or that it does not, with an empty ``sentence``. A refusal by the server is
    ignored: `explain` then does not know."""
    key = hung_key(member.stream, member.group)
    if sentence:
        yield [["HSET", key, member.consumer, sentence], ["PEXPIRE", key, KEPT_MS]]
    else:
        yield [["HDEL", key, member.consumer]]


def read_hung(stream: str, group: str) -> Operation[dict[str, str]]:
    """Return the consumers that hang, with a sentence of each."""
    replies = yield [["HGETALL", hung_key(stream, group)]]
    if isinstance(replies[0], Refused):
        return {}
    return {
        name.decode("utf-8", "replace"): said.decode("utf-8", "replace")
        for name, said in mapping(replies[0]).items()
    }
