"""Whatever ACL SETUSER accepts, ACL SAVE and CONFIG REWRITE write so that the next start reads the same users."""

from __future__ import annotations

import tempfile
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from headwater.config.access import AccessConfig
from headwater.config.loading import load
from headwater.config.rewriting import rewritten
from headwater.errors import CommandError
from headwater.resp.inline import quote
from headwater.server.services.acl import file
from headwater.server.services.acl.access import AccessControl
from headwater.server.session.user import User

EVIL = b"0\nuser evil on nopass ~* &* +@all"
TEXTS = st.one_of(
    st.binary(max_size=4),
    st.lists(st.sampled_from(list(b"a* \t\r\n\v\f\0\"'\\#()|~&%>\x85\xa0\xff")), max_size=4).map(
        bytes
    ),
    st.sampled_from([b"*", EVIL, b"user", b"default", "\u2028".encode(), b"x" * 5000]),
)
"""Names, patterns and arguments; most have characters of the files' syntax."""

WORDS = st.sampled_from(
    [
        b"~*", b"&*", b"allkeys", b"resetkeys", b"allchannels", b"resetchannels", b"+@all", b"-@all", b"+get", b"-get",
        b"+@read", b"-@read", b"+config", b"-config", b"+config|get", b"-config|get", b"+select", b"-select",
        b"+select|0", b"-@connection", b"+zadd", b"+@sortedset", b"%RW~*",
    ]
)  # fmt: skip
SIGNS = st.sampled_from(
    [b"~", b"%R~", b"%W~", b"%RW~", b"&", b"+select|", b"+get|", b"%", b"+", b""]
)
SELECTOR_RULES = st.one_of(WORDS, st.builds(bytes.__add__, SIGNS, TEXTS))
SELECTORS = st.lists(st.one_of(SELECTOR_RULES, SELECTOR_RULES.map(quote)), max_size=3).map(
    lambda rules: b"(%b)" % b" ".join(rules)
)
USER_WORDS = st.sampled_from(
    [b"on", b"off", b"nopass", b"resetpass", b"reset", b"clearselectors", b"skip-sanitize-payload"]
)
PASSWORDS = st.builds(bytes.__add__, st.sampled_from([b">", b"<", b"#"]), TEXTS)
RULES = st.one_of(SELECTOR_RULES, SELECTORS, USER_WORDS, PASSWORDS)


def permissions(user: User) -> list[object]:
    """Return all that a user may do and how it is shown."""
    return [
        user.describe(), user.enabled, user.nopass, list(user.passwords), user.sanitize_payload,
        [
            (
                one.allowed, one.future, {name: set(words) for name, words in one.first_arguments.items()},
                one.all_keys, {word: pattern.permissions for word, pattern in one.patterns.items()},
                one.all_channels, set(one.channels),
            )
            for one in user.selectors
        ],
    ]  # fmt: skip


def users(access: AccessControl) -> dict[bytes, list[object]]:
    return {name: permissions(user) for name, user in access.users.items()}


@pytest.mark.slow
@given(
    st.dictionaries(TEXTS, st.lists(RULES, max_size=8), max_size=3),
    st.sampled_from(["allchannels", "resetchannels"]),
)
@example({b"al": [b"%RW~*", b"~foo"]}, "resetchannels")
@example({b"al": [b"(%RW~* ~foo)"]}, "allchannels")
@example({b"default": [b"resetkeys", b"%RW~*"]}, "resetchannels")
@example({b"al": [b"+select|a b"]}, "resetchannels")
@example({b"al": [b"+select|" + EVIL]}, "resetchannels")
def test_whatever_is_accepted_is_loaded_again(
    rules: dict[bytes, list[bytes]], channels: str
) -> None:
    # Given users made by any rules, some of which are refused
    default = ("acl-pubsub-default", channels)
    access = AccessControl(load(flags=[default], environ={}))
    for name, words in rules.items():
        for word in words:
            with suppress(CommandError):
                access.put(access.changed(name, [word]))

    with tempfile.TemporaryDirectory() as directory:
        # When ACL SAVE writes them to a file and CONFIG REWRITE to another
        aclfile, conf = Path(directory, "users.acl"), Path(directory, "headwater.conf")
        file.write(aclfile, access.sorted())
        conf.write_text(f"acl-pubsub-default {channels}\n")
        conf.write_bytes(rewritten(load(file=conf, environ={}), users=access.lines("")))

        # Then a server that starts with either has the same users, and no others
        for config in (AccessConfig(aclfile=str(aclfile)), load(file=conf, environ={})):
            assert users(AccessControl(config)) == users(access)
