"""The order in which replies are released to clients."""

from __future__ import annotations

from headwater.server.session.session import Session
from headwater.server.turn.node import Node


def test_woken_clients_get_their_replies_before_the_clients_of_the_turn() -> None:
    # Given two waiting consumers, of which the second has sent another request
    node, released = Node(), list[str]()

    def connect(name: str) -> Session:
        return node.connect(kind="tcp", address="", on_output=lambda session: released.append(name))

    def ask(session: Session, *commands: bytes) -> None:
        session.feed(b"".join(command + b"\r\n" for command in commands))

    adder, first, second = connect("adder"), connect("first"), connect("second")
    ask(adder, b"XGROUP CREATE orders g $ MKSTREAM")
    node.turn([adder])
    for consumer in (first, second):
        ask(consumer, b"XREADGROUP GROUP g a BLOCK 0 STREAMS orders >")
        node.turn([consumer])
    ask(second, b"PING")
    # When a turn serves a client with a request, and one that adds what both wait for
    other = connect("other")
    ask(other, b"PING")
    ask(adder, b"XADD orders 1-1 item tea", b"XADD orders 2-1 item cups")
    released.clear()
    node.turn([other, adder])
    # Then the consumers come first, in order of arrival
    assert released == ["first", "second", "other", "adder"]
    assert b"tea" in first.output.take()
    assert second.output.take().endswith(b"cups\r\n+PONG\r\n")
