"""Reports of workers about themselves: all their handlers hang, or a large transfer is under way.

Rule. While one of these is true, a worker writes it every two seconds into a hash, consumer → sentence:
      ``{stream}:hw:hung:<group>`` or ``{stream}:hw:transfers:<group>``. The hash expires soon after the worker stops.
"""

from __future__ import annotations

from headwater.groups.membership.member import Member
from headwater.groups.protocol.operation import Operation, Refused, mapping
from headwater.messages.keys import hung_key, transfers_key

KEPT_MS = 10_000


def write_hung(member: Member, sentence: str) -> Operation[None]:
    """Write the reason why this consumer hangs. An empty ``sentence`` removes it. A refusal by the server is
    ignored; `explain` then does not know of it."""
    yield from _write(hung_key(member.stream, member.group), member, sentence)


def write_transfers(member: Member, sentence: str) -> Operation[None]:
    """Write the large reply or result of this consumer that is under way, as `write_hung` does."""
    yield from _write(transfers_key(member.stream, member.group), member, sentence)


def _write(key: str, member: Member, sentence: str) -> Operation[None]:
    if sentence:
        yield [["HSET", key, member.consumer, sentence], ["PEXPIRE", key, KEPT_MS]]
    else:
        yield [["HDEL", key, member.consumer]]


def read_said(stream: str, group: str) -> Operation[tuple[dict[str, str], dict[str, str]]]:
    """Return the consumers that hang, and those with large transfers, each with its sentence."""
    keys = hung_key(stream, group), transfers_key(stream, group)
    hung, transfers = yield [["HGETALL", key] for key in keys]
    return _sentences(hung), _sentences(transfers)


def _sentences(reply: object) -> dict[str, str]:
    if isinstance(reply, Refused):
        return {}
    return {
        name.decode("utf-8", "replace"): said.decode("utf-8", "replace")
        for name, said in mapping(reply).items()
    }
