"""ACL rules create a user, and the user's description recreates it."""

from __future__ import annotations

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.commands.table import BY_FULL_NAME
from headwater.server.services.acl.rules import (
    CATEGORIES,
    RuleError,
    UnmatchedParenthesis,
    apply,
    merge_selectors,
    shown,
)
from headwater.server.session.user import User

BYTES = st.binary(max_size=6).filter(lambda text: not set(text) & set(b" \t\n\v\f\r\0"))
SELECTOR_WORDS = st.one_of(
    st.sampled_from([f"{sign}{name}".encode() for sign in "+-" for name in BY_FULL_NAME]),
    st.sampled_from([f"{sign}@{name}".encode() for sign in "+-" for name in CATEGORIES]),
    st.sampled_from([b"+select|0", b"+get|X", b"allcommands", b"-@all", b"resetkeys", b"&*"]),
    st.builds(lambda sign, text: sign + text, st.sampled_from([b"~", b"%R~", b"%W~", b"&"]), BYTES),
)
USER_WORDS = st.one_of(
    SELECTOR_WORDS,
    st.sampled_from([b"on", b"off", b"nopass", b"resetpass", b"skip-sanitize-payload"]),
    st.builds(lambda text: b">" + text, st.binary(max_size=5)),
)


def made(*words: bytes, all_channels: bool = False) -> User:
    user = User(b"alice", all_channels=all_channels)
    apply(user, words, all_channels=all_channels)
    return user


def applied(words: list[bytes]) -> User:
    """Return a user with those of ``words`` that are valid."""
    user = User(b"alice", all_channels=False)
    for word in words:
        try:
            apply(user, [word], all_channels=False)
        except RuleError:
            continue
    return user


@given(st.lists(USER_WORDS, max_size=12), st.lists(st.lists(SELECTOR_WORDS, max_size=5)))
def test_a_description_recreates_the_user(words: list[bytes], selectors: list[list[bytes]]) -> None:
    # Given a user with any rules, and selectors with any rules
    user = applied(words)
    for rules in selectors:
        user.selectors.append(applied(rules).root)
    user.update_unrestricted()

    # When its description is split, like a file, and applied to a new user
    again = made(*merge_selectors(user.describe().split(b" ")))

    # Then both have the same description and the same permissions
    assert again.describe() == user.describe()
    assert again.unrestricted == user.unrestricted
    for one, other in zip(again.selectors, user.selectors, strict=True):
        assert one.allowed == other.allowed
        assert one.patterns.keys() == other.patterns.keys()


def test_no_password_is_stored_as_text() -> None:
    user = made(b">secret")
    assert b"secret" not in user.describe()
    assert user.describe().split()[2] == b"#" + hashlib.sha256(b"secret").hexdigest().encode()


@pytest.mark.parametrize("word", [b"<secret", b"#secret", b"!secret", b"(~a >secret)", b"(#x)"])
def test_no_password_is_shown_in_an_error(word: bytes) -> None:
    with pytest.raises(RuleError) as caught:
        made(word)
    assert "secret" not in caught.value.word
    assert "secret" not in caught.value.reason


def test_an_error_shows_other_words_unchanged() -> None:
    assert shown(b"+nosuch") == "+nosuch"
    assert shown(b"(+nosuch)") == "(+nosuch)"


def test_passwords_are_compared_whole_and_only_for_enabled_users() -> None:
    user = made(b"on", b">one", b">two")
    assert [user.accepts(text) for text in (b"one", b"two", b"on", b"One", b"")] == [
        True, True, False, False, False,
    ]  # fmt: skip
    assert not made(b"off", b">one").accepts(b"one")
    assert not made(b"off", b"nopass").accepts(b"")
    assert made(b"on", b"nopass").accepts(b"anything")
    assert not made(b"on", b">one", b"resetpass").accepts(b"one")
    assert not made(b"on", b"nopass", b">one").accepts(b"two")


@pytest.mark.parametrize("words", [[b"(", b"+get"], [b"on", b"(a", b"b"], [b"(x", b"(y"]], ids=str)
def test_an_unclosed_selector_is_an_error(words: list[bytes]) -> None:
    with pytest.raises(UnmatchedParenthesis):
        merge_selectors(words)


def test_a_user_without_restrictions_is_flagged() -> None:
    assert made(b"allkeys", b"allchannels", b"allcommands").unrestricted
    assert made(b"(~* &* +@all)").unrestricted
    for taken in (b"-get", b"resetkeys", b"resetchannels", b"-@read", b"nocommands"):
        assert not made(b"allkeys", b"allchannels", b"allcommands", taken).unrestricted
    assert not made(b"~*", b"&*", b"(+@all)").unrestricted, "no single selector allows everything"


def test_copied_rules_are_independent() -> None:
    other = made(b"+get", b"(~a +set)")
    user = other.copy()
    apply(other, [b"+del", b"clearselectors"], all_channels=False)
    assert user.root.allowed == {"get"}
    assert len(user.selectors) == 2


def test_every_category_of_a_command_exists_in_redis() -> None:
    assert {category for row in BY_FULL_NAME.values() for category in row.categories} <= set(
        CATEGORIES
    )
