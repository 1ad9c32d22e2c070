"""In which order clients are told that their answers may be sent."""

from __future__ import annotations

from headwater.server.session.session import Session
from headwater.server.turn.node import Node


def test_who_has_waited_is_answered_before_who_is_not_kept_waiting() -> None:
    # Given two consumers that wait, the second in line having asked for more meanwhile
    node, told = Node(), list[str]()

    def connect(name: str) -> Session:
        return node.connect(kind="tcp", address="", on_output=lambda session: told.append(name))

    def ask(session: Session, *commands: bytes) -> None:
        session.feed(b"".join(command + b"\r\n" for command in commands))

    adder, first, second = connect("adder"), connect("first"), connect("second")
    ask(adder, b"XGROUP CREATE orders g $ MKSTREAM")
    node.turn([adder])
    for consumer in (first, second):
        ask(consumer, b"XREADGROUP GROUP g a BLOCK 0 STREAMS orders >")
        node.turn([consumer])
    ask(second, b"PING")
    # When a turn serves one who asks, and one who adds what both wait for
    other = connect("other")
    ask(other, b"PING")
    ask(adder, b"XADD orders 1-1 item tea", b"XADD orders 2-1 item cups")
    told.clear()
    node.turn([other, adder])
    # Then the consumers come first, in the order in which they came
    assert told == ["first", "second", "other", "adder"]
    assert b"tea" in first.output.take()
    assert second.output.take().endswith(b"cups\r\n+PONG\r\n")
