"""Damages the files of stores with real histories and checks the result of opening them.

Whatever is done to one file, one of the following must hold:
- the state is exactly that after some number of commands; if it is not that after all of them, a cut or
  a note reports it;
- opening is refused as `JournalDamaged`, with a file and an offset, and nothing is changed.

Only two cases may go unreported, because no remaining data shows them, and only without a clean stop: the
newest file is an older copy of itself, or its newest records are zeros from the first byte on. MANIFEST may be
an older copy of itself, or missing where there is no image, because the journal files vouch for themselves.
"""

from __future__ import annotations

import dataclasses
import re
from collections import Counter
from collections.abc import Callable
from random import Random

from headwater.config.config import Config
from headwater.config.storage import FsyncPolicy
from headwater.errors import JournalDamaged
from headwater.journal.format.names import number_of
from headwater.journal.format.records import (
    FILE_HEADER_BYTES,
    Group,
    file_key,
    read_groups,
)
from headwater.journal.log.journal import Journal
from headwater.server.opening import open_node
from headwater.testing.files import CrashableFiles
from headwater.testing.node import LocalStore
from tests.crash.journal_tools import MANIFEST, bytes_of, copied, flip_bit, journal_names
from tests.property.state import picture

FILE_BYTES = 2048
SEED = 0x5EED
_PLACE = re.compile(
    r"memory:/(?:journal-\d{6} is damaged at offset|MANIFEST is damaged at line) \d+: found "
)

Damage = Callable[["Campaign", CrashableFiles, Random], str]


@dataclasses.dataclass
class Campaign:
    """``trials`` damages of each kind to one history of ``commands`` under one policy."""

    policy: FsyncPolicy
    seed: int
    commands: int = 60
    trials: int = 20
    outcomes: Counter[str] = dataclasses.field(default_factory=Counter)
    failures: list[str] = dataclasses.field(default_factory=list)

    def run(self) -> Campaign:
        """Run the history, then damage its files. `failures` has what did not hold."""
        self._live(Random(self.seed))
        for name, damage in KINDS.items():
            for trial in range(self.trials):
                random = Random(f"{self.seed} {name} {trial}")
                files = copied(self.files)
                what = damage(self, files, random)
                if bytes_of(files) != self.content:
                    self._look(name, files, f"{self.policy}, seed {self.seed}, {name}, {what}")
        return self

    def _live(self, random: Random) -> None:
        store = _Store(self.policy)
        client = store.client()
        self.states = [picture(store.node.keyspace)]
        self.older: list[dict[str, bytes]] = []
        assert store.files is not None
        for number in range(1, self.commands + 1):
            words = random.choice(_COMMANDS)
            client(*(word.format(number, "x" * random.randrange(60)) for word in words))
            self.states.append(picture(store.node.keyspace))
            self.older.append(bytes_of(store.files))
        self.stopped = random.random() < 0.5
        if self.stopped:
            store.node.close()
        self.files = store.files
        self.content = bytes_of(self.files)
        self.newest = max(name for name in self.content if groups_in(name, self.content[name]))

    def _is_unseen(self, kind: str, content: dict[str, bytes]) -> bool:
        """Whether nothing shows the loss."""
        return not self.stopped and (kind == "older newest" or self._ends_in_zeros(content))

    def _ends_in_zeros(self, content: dict[str, bytes]) -> bool:
        """Whether the only change is that the newest file's last records are zeros."""
        newest = content[self.newest]
        end = max((group.end for group in groups_in(self.newest, newest)), default=0)
        return content == {**self.content, self.newest: newest} and not any(newest[end:])

    def _look(self, kind: str, files: CrashableFiles, where: str) -> None:
        before = bytes_of(files)
        try:
            node = open_node(Config(appendfsync="no"), files=files)
        except JournalDamaged as error:
            self.outcomes[f"{kind}: damaged"] += 1
            if not (_PLACE.match(str(error)) or "is missing" in str(error)):
                self.failures.append(f"{where}: no place in {error}")
            if bytes_of(files) != before:
                self.failures.append(f"{where}: refused, and something was changed")
            return
        except Exception as error:
            self.failures.append(f"{where}: {error!r}")
            return
        assert node.journal is not None
        report = node.journal.recovery.report()
        state = picture(node.keyspace)
        said = bool(report.cuts or report.notes)
        whole = state == self.states[-1]
        self.outcomes[
            f"{kind}: {'whole' if whole else 'prefix'}, {'said' if said else 'silent'}"
        ] += 1
        if state not in self.states:
            self.failures.append(f"{where}: a state that never existed")
        elif not (whole or said or self._is_unseen(kind, before)):
            self.failures.append(f"{where}: less than was written, and not reported")
        node.close()


class _Store(LocalStore):
    def __init__(self, policy: FsyncPolicy) -> None:
        self._policy: FsyncPolicy = policy
        super().__init__(config=Config(port=0))

    def _journal(self, files: CrashableFiles) -> Journal:
        return Journal.open(
            files, policy=self._policy, file_bytes=FILE_BYTES, clock=self.clock, seed=SEED
        )


_COMMANDS = [
    ("XADD", "s", "*", "n", "{0}", "pad", "{1}"),
    ("RPUSH", "list", "{0}{1}"),
    ("RPUSH", "list", "same"),
    ("SET", "key", "{0}"),
    ("INCR", "count"),
    ("HSET", "hash", "f{0}", "{1}"),
    ("SADD", "set", "{0}"),
    ("LPOP", "list"),
]


def groups_in(name: str, content: bytes) -> list[Group]:
    """Return the complete groups of a journal file; none of another file."""
    if not name.startswith("journal-"):
        return []
    key = file_key(number_of(name))
    return list(read_groups(memoryview(content), FILE_HEADER_BYTES, seed=SEED, key=key))


# --- kinds of damage --------------------------------------------------------------------------------


def _file(campaign: Campaign, random: Random) -> tuple[str, bytes, list[Group]]:
    """Return a file with records."""
    names = [name for name in campaign.content if groups_in(name, campaign.content[name])]
    name = random.choice([*names, campaign.newest])
    content = campaign.content[name]
    return name, content, groups_in(name, content)


def flip(campaign: Campaign, files: CrashableFiles, random: Random) -> str:
    name, content, _groups = _file(campaign, random)
    at = random.randrange(len(content))
    flip_bit(files, name, at, random.randrange(8))
    return f"{name} at {at}"


def flip_near_the_end(campaign: Campaign, files: CrashableFiles, random: Random) -> str:
    content = campaign.content[campaign.newest]
    end = groups_in(campaign.newest, content)[-1].end
    at = random.randrange(max(0, end - 200), end)
    flip_bit(files, campaign.newest, at, random.randrange(8))
    return f"{campaign.newest} at {at}"


def double(campaign: Campaign, files: CrashableFiles, random: Random) -> str:
    """Write a record twice and move everything after it."""
    name, content, groups = _file(campaign, random)
    group = random.choice(groups)
    files.corrupt(name, group.end, content[group.offset : group.end] + content[group.end :])
    if random.random() < 0.5:
        files.cut(name, len(content))
    return f"{name} at {group.offset}"


def copy_over_another(campaign: Campaign, files: CrashableFiles, random: Random) -> str:
    name, content, groups = _file(campaign, random)
    group, other = random.choice(groups), random.choice(groups)
    files.corrupt(name, other.offset, content[group.offset : group.end])
    return f"{name} {group.offset} to {other.offset}"


def copy_behind_the_end(campaign: Campaign, files: CrashableFiles, random: Random) -> str:
    name, content, groups = _file(campaign, random)
    group, end = (
        random.choice(groups[-3:]),
        groups_in(campaign.newest, campaign.content[campaign.newest])[-1].end,
    )
    files.corrupt(campaign.newest, end, content[group.offset : group.end])
    return f"{name} {group.offset} to {end} of {campaign.newest}"


def swap(campaign: Campaign, files: CrashableFiles, random: Random) -> str:
    name, content, groups = _file(campaign, random)
    at = random.randrange(len(groups))
    first, second = groups[at - 1 : at + 1] if at else (groups[0], groups[0])
    files.corrupt(
        name,
        first.offset,
        content[second.offset : second.end] + content[first.offset : first.end],
    )
    if first is second:
        files.corrupt(name, 0, content)
    return f"{name} at {first.offset}"


def truncate(campaign: Campaign, files: CrashableFiles, random: Random) -> str:
    name, content, _groups = _file(campaign, random)
    size = random.randrange(len(content))
    files.cut(name, size)
    return f"{name} to {size}"


def zero(campaign: Campaign, files: CrashableFiles, random: Random) -> str:
    name, content, _groups = _file(campaign, random)
    at = random.randrange(len(content))
    files.corrupt(name, at, bytes(min(len(content) - at, random.choice((1, 100, 512)))))
    return f"{name} at {at}"


def put_older_back(campaign: Campaign, files: CrashableFiles, random: Random) -> str:
    older = random.choice(campaign.older)
    names = [name for name in older if name not in {campaign.newest, MANIFEST}]
    name = random.choice(names)
    files.corrupt(name, 0, older[name])
    return name


def put_older_newest_back(campaign: Campaign, files: CrashableFiles, random: Random) -> str:
    older = random.choice([one for one in campaign.older if campaign.newest in one])
    files.corrupt(campaign.newest, 0, older[campaign.newest])
    return campaign.newest


def remove_newest(campaign: Campaign, files: CrashableFiles, random: Random) -> str:
    """Remove the newest file with records, and those after it."""
    for name in journal_names(files):
        if name >= campaign.newest:
            files.remove(name)
    return campaign.newest


def exchange_files(campaign: Campaign, files: CrashableFiles, random: Random) -> str:
    """Write the records of one file to another, which keeps its header."""
    name, content, _groups = _file(campaign, random)
    other = random.choice([one for one in campaign.content if one not in {name, MANIFEST}])
    files.corrupt(other, FILE_HEADER_BYTES, content[FILE_HEADER_BYTES:])
    return f"{name} to {other}"


def damage_the_spare(campaign: Campaign, files: CrashableFiles, random: Random) -> str:
    spare = max(campaign.content)
    files.corrupt(spare, random.randrange(32), bytes(random.randrange(1, 32)))
    return spare


def flip_in_the_manifest(campaign: Campaign, files: CrashableFiles, random: Random) -> str:
    at = random.randrange(len(campaign.content[MANIFEST]))
    flip_bit(files, MANIFEST, at, random.randrange(8))
    return f"{MANIFEST} at {at}"


def cut_the_manifest(campaign: Campaign, files: CrashableFiles, random: Random) -> str:
    size = random.randrange(len(campaign.content[MANIFEST]))
    files.cut(MANIFEST, size)
    return f"{MANIFEST} to {size}"


def put_older_manifest_back(campaign: Campaign, files: CrashableFiles, random: Random) -> str:
    older = random.choice(campaign.older)[MANIFEST]
    files.cut(MANIFEST, 0)
    files.corrupt(MANIFEST, 0, older)
    return MANIFEST


def remove_the_manifest(campaign: Campaign, files: CrashableFiles, random: Random) -> str:
    files.remove(MANIFEST)
    return MANIFEST


KINDS: dict[str, Damage] = {
    "flip": flip,
    "flip near the end": flip_near_the_end,
    "double": double,
    "copy over": copy_over_another,
    "copy behind": copy_behind_the_end,
    "swap": swap,
    "truncate": truncate,
    "zero": zero,
    "older": put_older_back,
    "older newest": put_older_newest_back,
    "newest gone": remove_newest,
    "exchange": exchange_files,
    "spare": damage_the_spare,
    "manifest flip": flip_in_the_manifest,
    "manifest cut": cut_the_manifest,
    "manifest older": put_older_manifest_back,
    "manifest gone": remove_the_manifest,
}
