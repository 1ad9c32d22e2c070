"""Permissions that cannot be compared with Redis: Headwater's own commands, channels, the log."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.commands.table import COMMANDS, Command
from headwater.resp.arguments import Arguments
from headwater.server.services.acl.log import GROUPING_MS, LOOKED_AT, AccessLog
from headwater.server.services.acl.permissions import Denial, denial, sentence
from headwater.server.services.acl.rules import apply, merge_selectors
from headwater.server.session.user import User
from headwater.testing.node import LocalStore
from headwater.testing.replies import Failure


def user_of(rules: str) -> User:
    user = User(b"alice", all_channels=False)
    apply(user, merge_selectors(rules.encode().split()), all_channels=False)
    return user


def verdict(rules: str, request: str) -> str:
    """Return ``OK``, or the kind and name of what is refused."""
    arguments = Arguments.of(*request.encode().split())
    found = denial(user_of(rules), COMMANDS[arguments.token(0)], arguments)
    return "OK" if found is None else f"{found.kind} {found.object.decode()}"


TO = "XSETTLE s g c ACK IDS 1 1-1 TO dest * FIELDS 1 f v"

VERDICTS = {
    ("+xsettle ~s ~dest", TO): "OK",
    ("+xsettle ~s", TO): "key dest",
    ("+xsettle %W~s %W~dest", TO): "OK",
    ("+xsettle %R~s %W~dest", TO): "key s",
    ("+xsettle ~s %R~dest", TO): "key dest",
    ("+xsettle ~s ~dest ~TO", f"{TO} TO TO * FIELDS 1 TO x"): "OK",
    ("+xsettle ~s ~dest", f"{TO} TO other * FIELDS 1 a b"): "key other",
    ("+xsettle ~s", "XSETTLE s g c ACK IDS 1 1-1"): "OK",
    ("+@stream ~s", "XRENEW s g c IDS 1 1-1"): "OK",
    ("+@read ~s", "XRENEW s g c IDS 1 1-1"): "command xrenew",
    ("+@read %R~s", "XSPLIT s - + 4"): "OK",
    ("+@read %W~s", "XSPLIT s - + 4"): "key s",
    ("+@write %W~s", "XRETIRE s g c"): "OK",
    ("+@write %R~s", "XRETIRE s g c"): "key s",
    ("+@write %W~s", "SET s v"): "OK",
    ("+@write %W~s", "SET s v GET"): "key s",
}

READS = {
    "XREADGROUP GROUP g c STREAMS secret >": "key secret",
    "XREADGROUP NOACK GROUP g streams streams secret >": "key secret",
    "XREADGROUP COUNT 1 GROUP g streams streams secret >": "key secret",
    "XREADGROUP GROUP streams streams streams secret >": "key secret",
    "XREADGROUP GROUP g c CLAIM 5 STREAMS streams secret > >": "key secret",
    "XREADGROUP NOACK GROUP g streams streams streams >": "OK",
    "XREAD COUNT 1 BLOCK 1 STREAMS streams secret 0 0": "key secret",
}


@pytest.mark.parametrize("request_line", READS)
def test_the_streams_of_a_read_are_checked_whatever_the_consumer_is_called(
    request_line: str,
) -> None:
    assert verdict("+@all ~streams", request_line) == READS[request_line]


@pytest.mark.parametrize(("rules", "request_line"), VERDICTS)
def test_headwater_commands_are_checked_by_their_keys(rules: str, request_line: str) -> None:
    assert verdict(rules, request_line) == VERDICTS[rules, request_line]


PUBLISH = Command(
    "publish", arity=3, flags="pubsub fast", group="pubsub", since="2.0.0", summary="Publishes."
)
SUBSCRIBE = Command(
    "subscribe", arity=-2, flags="pubsub", group="pubsub", since="2.0.0", summary="Subscribes."
)
PSUBSCRIBE = Command(
    "psubscribe", arity=-2, flags="pubsub", group="pubsub", since="2.0.0", summary="Subscribes."
)
UNSUBSCRIBE = Command(
    "unsubscribe", arity=-1, flags="pubsub", group="pubsub", since="2.0.0", summary="Leaves."
)


@pytest.mark.parametrize(
    ("command", "channels", "refused"),
    [
        (PUBLISH, [b"news:a", b"other"], None),
        (PUBLISH, [b"other", b"news:a"], b"other"),
        (PUBLISH, [b"", b"x"], b""),
        (SUBSCRIBE, [b"news:a", b"news:b"], None),
        (SUBSCRIBE, [b"news:a", b"other"], b"other"),
        (SUBSCRIBE, [b"news:*"], None),
        (PSUBSCRIBE, [b"news:*"], None),
        (PSUBSCRIBE, [b"news:a"], b"news:a"),
        (PSUBSCRIBE, [b"news:a*"], b"news:a*"),
        (UNSUBSCRIBE, [b"other"], None),
    ],
)
def test_a_rule_matches_channels_but_only_equal_patterns(
    command: object, channels: list[bytes], refused: bytes | None
) -> None:
    # Given a user who may subscribe to and publish on channels news:*
    user = User(b"alice", all_channels=False)
    apply(user, [b"&news:*"], all_channels=False)
    user.root.allowed = {"publish", "subscribe", "psubscribe", "unsubscribe"}
    # Then another channel is refused, and so is a pattern that differs from the rule's
    found = denial(user, command, Arguments.of(b"x", *channels))  # type: ignore[arg-type]
    assert (found.object if found else None) == refused
    if found is not None:
        assert sentence(user, found) == "No permissions to access a channel"
        text = refused.decode() if refused else ""
        assert sentence(user, found, verbose=True) == (
            f"User alice has no permissions to access the '{text}' channel"
        )


def test_of_several_selectors_the_refusal_that_got_furthest_is_reported() -> None:
    assert verdict("+get (~b +set)", "SET a v") == "key a"
    assert verdict("(+mget) (+mget ~a)", "GET a") == "command get"
    assert verdict("(+xread ~a ~b) (+xread ~a)", "XREAD STREAMS a b c 0 0 0") == "key c"
    assert Denial("key", b"c", 4) == denial(
        user_of("(+xread ~a ~b) (+xread ~a)"),
        COMMANDS[b"XREAD"],
        Arguments.of(b"XREAD", b"STREAMS", b"a", b"b", b"c", b"0", b"0", b"0"),
    )


IDS = st.sampled_from([b"IDS 1 1-1", b"IDS 1 1-2", b"IDS 2 1-1 1-2", b"IDS 0", b"IDS TO dest"])
KEY = st.sampled_from([b"s", b"other", b"TO", b"IDS", b"FIELDS", b"DELAY"])
TRIM = st.sampled_from([b"", b"MAXLEN 5", b"MAXLEN ~ 5", b"MINID = 0", b"MAXLEN TO"])
FIELDS = st.sampled_from(
    [b"FIELDS 1 a b", b"FIELDS 1 TO other", b"FIELDS 2 a b TO other", b"FIELDS 0", b"FIELDS TO 1"]
)
PARTS = st.one_of(
    IDS,
    st.builds(
        lambda key, trim, fields: b" ".join([b"TO", key, trim, b"*", fields]), KEY, TRIM, FIELDS
    ),
    st.sampled_from([b"DELAY 5", b"DELAY TO", b"TO", b"x"]),
)


@given(st.sampled_from([b"ACK", b"FAIL", b"SILENT"]), st.lists(PARTS, max_size=5))
@settings(max_examples=300)
def test_xsettle_never_writes_a_key_that_its_user_may_not_write(
    mode: bytes, parts: list[bytes]
) -> None:
    # Given pending entries and a user who may write only their stream
    store = LocalStore(journaled=False)
    admin, client = store.client(), store.client(kind="tcp")
    for number in (1, 2):
        admin("XADD", "s", f"1-{number}", "f", "v")
    admin("XGROUP", "CREATE", "s", "g", "0")
    admin("XREADGROUP", "GROUP", "g", "c", "STREAMS", "s", ">")
    admin("ACL", "SETUSER", "alice", "on", "nopass", "+@all", "~s")
    client("AUTH", "alice", "x")
    # When the user settles them with any arguments
    words = b" ".join([b"XSETTLE s g c", mode, *parts]).split()
    client(*words)
    # Then there is no other key
    assert admin("KEYS", "*") == [b"s"]


def add(
    log: AccessLog, about: bytes, now_ms: int, *, kind: str = "key", user: bytes = b"u"
) -> None:
    log.add(kind, context="toplevel", about=about, user=user, client=b"", now_ms=now_ms)


def test_a_refusal_that_repeats_within_a_minute_is_counted() -> None:
    log = AccessLog(10)
    add(log, b"a", 0)
    add(log, b"b", 10)
    add(log, b"a", GROUPING_MS)
    assert [(one.object, one.count) for one in log.entries] == [(b"a", 2), (b"b", 1)]
    add(log, b"a", 2 * GROUPING_MS + 1)
    add(log, b"a", 2 * GROUPING_MS + 1, kind="command")
    add(log, b"a", 2 * GROUPING_MS + 1, user=b"v")
    assert [one.number for one in log.entries] == [4, 3, 2, 0, 1]
    assert log.counts == {"auth": 0, "command": 1, "key": 5, "channel": 0}


def test_the_log_stays_small_in_a_flood_of_refusals() -> None:
    log = AccessLog(20)
    for number in range(1000):
        add(log, b"%d" % number, 0)
    assert [one.object for one in log.entries] == [b"%d" % n for n in range(999, 979, -1)]
    add(log, b"%d" % (999 - LOOKED_AT), 0)
    assert log.entries[0].count == 1, "a refusal is compared with only the newest entries"
    log.max_length = 0
    add(log, b"x", 0)
    assert log.entries == []


def test_a_refused_request_changes_nothing_but_the_log() -> None:
    store = LocalStore(journaled=False)
    admin, client = store.client(), store.client(kind="tcp")
    admin("ACL", "SETUSER", "alice", "on", "nopass", "+@all", "~a")
    client("AUTH", "alice", "x")
    for words in (("XADD", "b", "*", "f", "v"), ("RENAME", "a", "b"), ("COPY", "a", "b")):
        answer = client(*words)
        assert answer == Failure(b"NOPERM No permissions to access a key")
    assert admin("DBSIZE") == 0
    assert store.node.services.access.log.counts["key"] == 3
    assert len(store.node.services.access.log.entries) == 1
