"""Applies random rules to a user on Headwater and on Redis. For every command that both have, ACL
DRYRUN must then reply the same."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest

from headwater.commands.table import BY_FULL_NAME
from headwater.server.services.acl.rules import CATEGORIES
from headwater.testing.node import LocalStore
from headwater.testing.replies import Reply, Simple
from tests.conformance.endpoints import Connection
from tests.peers import Peer
from tests.samples import sampled

REQUESTS = 150
LETTERS = "abAB*?[]^-\\:"
KEYS = (b"a", b"b", b"ab", b"ba", b"a:b", b"b:a", b"A", b"", b"a*", b"[a]", b"aab", b"a\xffb")
WORDS = (b"GET", b"STREAMS", b"streams", b"0", b"1", b"COUNT", b"help", b"NX")
EACH_SERVER_ITS_OWN = {"sort", "sort_ro", "migrate", "eval", "evalsha", "script|load"}


class Chance:
    """Draws the rules and requests of a round. The same number draws the same round."""

    def __init__(self, number: int, names: list[str]) -> None:
        self.random = Random(number)
        self.names = names

    def pattern(self) -> bytes:
        shape = self.random.choice(("word", "prefix", "glob"))
        if shape == "glob":
            letters = self.random.choices(LETTERS, k=self.random.randrange(1, 5))
            return "".join(letters).encode()
        return self.random.choice(KEYS) + (b"*" if shape == "prefix" else b"")

    def selector_rule(self) -> bytes:
        """Return a rule for commands, keys or channels; occasionally an invalid one."""
        name = self.random.choice(self.names)
        category = self.random.choice(CATEGORIES)
        sign = self.random.choice("+-")
        made = self.random.choice(
            (
                f"{sign}{name}",
                f"{sign}{name}",
                f"{sign}@{category}",
                f"{sign}@{category}",
                f"{sign}@{category}".upper(),
                f"{sign}{name.partition('|')[0]}",
                f"+{name.partition('|')[0]}|{self.random.choice(('a', 'GET', 'help'))}",
                "allcommands",
                "-@all",
                "resetkeys",
                "allkeys",
                "allchannels",
                "resetchannels",
                "+nosuch",
            )
        )
        keys = self.random.choice((b"~", b"%R~", b"%W~", b"%RW~", b"&")) + self.pattern()
        return self.random.choice((made.encode(), keys))

    def rules(self) -> list[bytes]:
        found = [self.selector_rule() for _ in range(self.random.randrange(1, 8))]
        while self.random.random() < 0.4:
            inner = [self.selector_rule() for _ in range(self.random.randrange(0, 4))]
            found.append(b"(" + b" ".join(inner) + b")")
        if self.random.random() < 0.1:
            found.append(self.random.choice((b"clearselectors", b"reset", b"nopass")))
        return found

    def request(self) -> list[bytes]:
        """Return a request with enough arguments: keys and words in any order."""
        name = self.random.choice(self.names)
        row = BY_FULL_NAME[name]
        words = [word.encode() for word in name.split("|")]
        count = abs(row.arity) + (self.random.randrange(3) if row.arity < 0 else 0)
        pool = KEYS if self.random.random() < 0.7 else (*KEYS, *WORDS)
        words += self.random.choices(pool, k=count - len(words))
        first = 1
        if name == "xreadgroup":
            # Without GROUP the request is invalid, and Redis looks for STREAMS at wrong places.
            words[1:4] = [b"GROUP", *self.random.choices(KEYS, k=2)]
            first = 4
        if any(spec.keyword for spec in row.keys):
            words.insert(self.random.randrange(first, len(words) + 1), b"STREAMS")
        return words


def shared_names(redis: Connection) -> list[str]:
    """Return the commands, and subcommands of containers, that both servers have."""
    names = []
    for name, row in BY_FULL_NAME.items():
        container = row.subcommands and name != "command"
        asked = redis.run([(b"COMMAND", b"INFO", name.encode())])[0]
        known = isinstance(asked, list) and isinstance(asked[0], list)
        if known and not container and name not in EACH_SERVER_ITS_OWN:
            names.append(name)
    return names


@pytest.mark.peer
@pytest.mark.parametrize("rounds", [60, pytest.param(sampled(500), marks=pytest.mark.slice)])
def test_dryrun_replies_are_those_of_redis(rounds: int, shared_peer: Callable[[str], Peer]) -> None:
    redis = Connection(shared_peer("redis-8.2"))
    names = shared_names(redis)
    assert len(names) > 80
    allowed = 0
    for number in range(rounds):
        # Given a user created by the same rules, some of which are errors
        chance = Chance(number, names)
        redis.run([(b"ACL", b"DELUSER", b"u")])
        history: list[tuple[bytes, ...]] = [(b"ACL", b"SETUSER", b"u")]
        history += [(b"ACL", b"SETUSER", b"u", *chance.rules()) for _ in range(4)]
        history.append((b"ACL", b"GETUSER", b"u"))
        # When both check the same requests
        requests = [chance.request() for _ in range(REQUESTS)]
        history += [(b"ACL", b"DRYRUN", b"u", *words) for words in requests]
        expected = redis.run(history)
        # Then the replies are the same, and name the same key
        for words, said, ours in zip(history, expected, answers(history), strict=True):
            assert ours == said, (number, list(words))
        allowed += expected.count(Simple(b"OK")) - 1
    redis.run([(b"ACL", b"DELUSER", b"u")])
    redis.close()
    assert 0.1 < allowed / (rounds * REQUESTS) < 0.9, "the rounds prove little"


def answers(history: list[tuple[bytes, ...]]) -> list[Reply]:
    client = LocalStore(journaled=False).client(kind="tcp")
    return [client(*words) for words in history]
