"""Which node of a cluster gets which command: the router, without a network."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from redis.exceptions import (
    AskError,
    MovedError,
    NoPermissionError,
    ResponseError,
    TryAgainError,
)
from redis.exceptions import ConnectionError as RedisConnectionError

from headwater.client.attempts import may_have_run
from headwater.client.routing import ASKED_BLOCK_MS, Part, QueuedCommand, Router
from headwater.client.server_url import NodeAddress
from headwater.client.slots import Topology, first_key, parse_slots, slot_of
from headwater.errors import ConfigError

A, B, C = NodeAddress("a", 1), NodeAddress("b", 2), NodeAddress("c", 3)
HALF = 8192
LOW, HIGH = "orders", "invoices"
"""Keys in the lower and in the upper half of the slots, which A and B own."""

HALVES: list[Any] = [[0, HALF - 1, [b"a", 1, b"x"]], [HALF, 16383, [b"b", 2, b"y"]]]

Answers = Callable[[Part], Any]


def _topology(*, cluster: bool = True) -> Topology:
    return Topology([A], cluster=cluster)


def _run(
    router: Router, commands: list[tuple[Any, ...]], answers: Answers, replies: Any = None
) -> tuple[list[Any], list[tuple[NodeAddress, list[Any]]]]:
    """Route ``commands``; return the replies, and the parts that were sent: node and commands.

    ``answers`` makes the reply to each part. CLUSTER SLOTS is answered with `HALVES` and is not among them.
    """
    sent: list[tuple[NodeAddress, list[Any]]] = []
    routing = router.route([QueuedCommand(words) for words in commands], replies)
    try:
        part = next(routing)
        while True:
            words = [list(one.words) for one in part.commands]
            if words == [[b"CLUSTER", b"SLOTS"]]:
                answer: Any = [HALVES]
            else:
                sent.append((part.node, words))
                answer = answers(part)
            part = routing.send(answer)
    except StopIteration as finished:
        return finished.value, sent


def _ok(part: Part) -> list[Any]:
    return [b"OK"] * len(part.commands)


def _at(node: NodeAddress, slot_key: str) -> str:
    return f"{slot_of(slot_key)} {node}"


def test_the_slots_of_the_keys_are_in_the_expected_halves() -> None:
    assert slot_of(LOW) < HALF <= slot_of(HIGH)


@pytest.mark.parametrize(
    ("command", "key"),
    [
        (("XADD", "s", "*", "a", 1), "s"),
        ((b"XINFO", "STREAM", b"s"), b"s"),
        (("XINFO STREAM", "s"), "s"),
        ((b"XGROUP", "CREATE", "s", "g", "$"), "s"),
        (("XREADGROUP", "GROUP", "streams", "streams", "COUNT", 1, "STREAMS", "s", ">"), "s"),
        (("XREAD", "BLOCK", 0, "streams", "s", "$"), "s"),
        ((b"EVALSHA", "d", 2, "s", "t"), "s"),
        (("EVAL", "return 1", 0), None),
        (("XSETTLE", "s", "g", "c", "ACK", "IDS", 1, "1-1", "TO", "t", "*", "FIELDS"), "s"),
        (("JSON.SET", "s", "$", "1"), "s"),
        (("TIME",), None),
        ((b"CLIENT", "ID"), None),
        (("INFO", "server"), None),
        (("COMMAND", "INFO", "xadd"), None),
        (("MULTI",), None),
        (("WAIT", 1, 100), None),
        (("PING",), None),
        (("SCRIPT", "LOAD", "x"), None),
    ],
)
def test_the_first_key_of_a_command(command: tuple[Any, ...], key: Any) -> None:
    assert first_key(command) == key


def test_commands_go_to_the_owners_of_their_keys_and_replies_keep_their_order() -> None:
    def answers(part: Part) -> list[Any]:
        return [one.words[1] for one in part.commands]

    commands = [("XLEN", LOW), ("XLEN", HIGH), ("XLEN", LOW)]
    found, sent = _run(Router(_topology()), commands, answers)
    assert found == [LOW, HIGH, LOW]
    assert [(node, len(words)) for node, words in sent] == [(A, 2), (B, 1)]


def test_a_command_without_a_key_goes_with_the_others_or_home() -> None:
    router = Router(_topology(), home=HIGH)
    assert _run(router, [("CLIENT", "ID")], _ok)[1][0][0] == B
    assert _run(router, [("TIME",), ("XLEN", LOW)], _ok)[1] == [(A, [["TIME"], ["XLEN", LOW]])]


def test_a_moved_slot_is_followed_and_remembered() -> None:
    topology = _topology()

    def answers(part: Part) -> list[Any]:
        return _ok(part) if part.node == C else [MovedError(_at(C, LOW))]

    found, sent = _run(Router(topology), [("XADD", LOW, "*", "a", 1)], answers)
    assert found == [b"OK"]
    assert [node for node, _words in sent] == [A, C]
    # CLUSTER SLOTS, asked again, still reports A. The redirection takes precedence.
    assert topology.owner(slot_of(LOW)) == C


def test_a_redirection_without_a_host_means_the_host_that_answered() -> None:
    def answers(part: Part) -> list[Any]:
        return _ok(part) if part.node.port == 9 else [MovedError(f"{slot_of(LOW)} :9")]

    router = Router(_topology())
    assert _run(router, [("XLEN", LOW)], answers)[1][1][0] == NodeAddress("a", 9)


def test_after_ask_the_command_follows_asking_and_its_block_is_shortened() -> None:
    read = ("XREADGROUP", "GROUP", "BLOCK", "c", "BLOCK", 5000, "STREAMS", LOW, ">")

    def answers(part: Part) -> list[Any]:
        return [AskError(_at(C, LOW))] if part.node == A else [b"OK", None]

    found, sent = _run(Router(_topology()), [read], answers)
    assert found == [None]
    assert sent[1] == (C, [[b"ASKING"], [*read[:5], ASKED_BLOCK_MS, *read[6:]]])


def test_a_transaction_is_redirected_as_a_whole() -> None:
    commands = [("MULTI",), ("HSET", LOW, "f", "v"), ("XADD", LOW, "*", "a", 1), ("EXEC",)]

    def answers(part: Part) -> list[Any]:
        if part.node != A:
            return [b"OK", *_ok(part)[1:]]
        return [b"OK", b"QUEUED", AskError(_at(C, LOW)), ResponseError("EXECABORT")]

    found, sent = _run(Router(_topology()), commands, answers)
    assert found == [b"OK"] * 4
    assert sent[1] == (C, [[b"ASKING"], *map(list, commands)])


def test_a_transaction_on_two_slots_is_refused_before_it_is_sent() -> None:
    commands = [("MULTI",), ("XADD", LOW, "*", "a", 1), ("XDEL", HIGH, "1-1"), ("EXEC",)]
    found, sent = _run(Router(_topology()), commands, _ok)
    assert all(str(one).startswith("CROSSSLOT") for one in found)
    assert not sent


def test_wait_is_sent_again_with_a_moved_write() -> None:
    # Given a WAIT that the wrong node answered with success
    def answers(part: Part) -> list[Any]:
        return [b"1-1", 0] if part.node == C else [MovedError(_at(C, LOW)), 1]

    topology = _topology()
    topology.replace(parse_slots(HALVES, A))
    router = Router(topology)
    routing = router.route(
        [QueuedCommand(("XADD", LOW, "*", "a", 1)), QueuedCommand(("WAIT", 1, 50))]
    )
    part = next(routing)
    part = routing.send(answers(part))
    assert part.commands[0].words == (b"CLUSTER", b"SLOTS")
    moved = [[0, 16383, [b"c", 3]]]
    part = routing.send([moved])

    # Then both are sent again
    assert [one.words[0] for one in part.commands] == ["XADD", "WAIT"]
    with pytest.raises(StopIteration) as finished:
        routing.send(answers(part))
    assert finished.value.value == [b"1-1", 0]


def test_an_endless_redirection_is_returned_as_the_reply() -> None:
    found, sent = _run(
        Router(_topology()), [("XLEN", LOW)], lambda _part: [MovedError(_at(C, LOW))]
    )
    assert isinstance(found[0], MovedError)
    assert len(sent) < 20


def test_a_lost_connection_is_raised_and_its_node_is_asked_last() -> None:
    topology = _topology()
    with pytest.raises(RedisConnectionError) as caught:
        _run(Router(topology), [("XADD", LOW, "*", "a", 1)], lambda _part: RedisConnectionError())
    assert not may_have_run(caught.value)  # only the connection knows whether it was sent
    assert not topology.fresh
    assert topology.nodes() == [B, A]


def test_a_lost_connection_after_another_node_has_written_says_so() -> None:
    def answers(part: Part) -> Any:
        return [b"1-1"] if part.node == A else RedisConnectionError("refused")

    with pytest.raises(RedisConnectionError) as caught:
        _run(Router(_topology()), [("XADD", LOW, "*"), ("XADD", HIGH, "*")], answers)
    assert may_have_run(caught.value)


def test_a_router_with_a_dedicated_connection_raises_on_redirection() -> None:
    topology = _topology()
    with pytest.raises(RedisConnectionError, match="another node"):
        _run(
            Router(topology, home=LOW, stays=True),
            [("XLEN", LOW)],
            lambda _part: [MovedError(_at(C, LOW))],
        )
    assert topology.owner(slot_of(LOW)) == C


def test_a_single_server_that_redirects_is_a_node_of_a_cluster() -> None:
    # Given replies of a presumed single server
    topology = _topology(cluster=False)
    replies = [MovedError(_at(B, HIGH)), 3]

    # When they are routed, then only the redirected command is sent
    commands = [("XLEN", HIGH), ("XLEN", LOW)]
    found, sent = _run(Router(topology), commands, _ok, replies)
    assert found == [b"OK", 3]
    assert sent == [(B, [["XLEN", HIGH]])]
    assert topology.cluster


def test_unwatch_goes_to_every_node_that_watches() -> None:
    router = Router(_topology())
    _run(router, [("WATCH", LOW), ("WATCH", HIGH)], _ok)
    assert [node for node, _words in _run(router, [("UNWATCH",)], _ok)[1]] == [A, B]


TRANSACTION: list[tuple[Any, ...]] = [("MULTI",), ("XADD", LOW, "*", "a", 1), ("EXEC",)]


def _asked_elsewhere(part: Part) -> list[Any]:
    """Reply as while a slot moves: C already has the stream, A still has the watched key."""
    if part.node == C:
        return _ok(part)
    return [AskError(_at(C, LOW)) if one.words[0] == "XADD" else b"OK" for one in part.commands]


def test_a_transaction_goes_only_to_the_node_that_watches() -> None:
    # Given a watched key, and a stream that is moving to another node
    router = Router(_topology())
    _run(router, [("WATCH", LOW), ("GET", LOW)], _asked_elsewhere)

    # When the transaction is redirected, then it does not run on a node that does not watch the key
    found, sent = _run(router, TRANSACTION, _asked_elsewhere)
    assert all(isinstance(one, TryAgainError) for one in found)
    assert [node for node, _words in sent] == [A]

    # And the next attempt starts from the beginning
    assert _run(router, TRANSACTION, _asked_elsewhere)[0] == [b"OK"] * 3


def test_a_transaction_is_refused_if_its_key_is_watched_on_another_node() -> None:
    # Given a watched key that is moving to another node, and a stream that is not
    router = Router(_topology())

    def key_is_away(part: Part) -> list[Any]:
        away = part.node != C and part.commands[0].words[0] == "WATCH"
        return [AskError(_at(C, LOW)) if away else b"OK" for _one in part.commands]

    _run(router, [("WATCH", LOW)], key_is_away)

    # Then the transaction is not sent to a node that does not watch the key
    found, sent = _run(router, TRANSACTION, _ok)
    assert all(isinstance(one, TryAgainError) for one in found)
    assert sent == []


def test_a_transaction_ends_the_watches_of_its_node() -> None:
    router = Router(_topology())
    _run(router, [("WATCH", LOW)], _ok)
    _run(router, TRANSACTION, _ok)
    assert _run(router, TRANSACTION, _asked_elsewhere)[0] == [b"OK"] * 3


def test_a_node_without_cluster_support_is_an_error() -> None:
    routing = Router(_topology()).route([QueuedCommand(("XLEN", LOW))])
    next(routing)
    with pytest.raises(ConfigError, match="redis://a:1"):
        routing.send([ResponseError("This instance has cluster support disabled")])


def test_an_unreachable_node_is_skipped() -> None:
    topology = Topology([A, B], cluster=True)
    routing = Router(topology).route([QueuedCommand(("XLEN", LOW))])
    assert next(routing).node == A
    assert routing.send(RedisConnectionError()).node == B
    assert routing.send([HALVES]).node == A


def test_a_node_without_an_address_in_its_reply_has_the_address_of_the_query() -> None:
    assert parse_slots([[0, 16383, [None, 7000]]], A)[5] == NodeAddress("a", 7000)
    assert parse_slots([[0, 16383, [b"", 7000]]], B)[5] == NodeAddress("b", 7000)


def test_missing_permission_for_cluster_slots_is_returned_as_the_reply() -> None:
    routing = Router(_topology()).route(
        [QueuedCommand(("XLEN", LOW)), QueuedCommand(("XLEN", HIGH))]
    )
    next(routing)
    refusal = NoPermissionError("this user has no permissions to run the 'cluster|slots' command")
    with pytest.raises(StopIteration) as finished:
        routing.send([refusal])
    assert finished.value.value == [refusal, refusal]
