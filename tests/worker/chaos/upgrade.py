"""A rolling upgrade: workers of an earlier commit and of this one in one group, under faults.

Every second process that starts runs the earlier commit, so that the group is mixed all the time and an
upgrade may also be taken back. The worker is plain Python, so a worktree of the commit is all it needs.
"""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Final

from benchmarks.machine import ROOT
from tests.worker.chaos.crew import Crew
from tests.worker.chaos.trial import WORKERS, Plan, Trial, Verdict

TREES: Final = ROOT / "build" / "upgrade"

PLAN: Final = Plan(kills=80, pauses=20, cuts=10, server_kills=2, messages=20_000)
"""A minute, at two faults a second."""


class NoSuchCommit(Exception):
    """git does not have the commit, or this is no clone."""


def tree_of(ref: str) -> Path:
    """The sources of a commit, in a worktree that stays for the next time."""
    asked = ["git", "rev-parse", "--verify", "--quiet", f"{ref}^{{commit}}"]
    found = subprocess.run(asked, cwd=ROOT, capture_output=True, text=True, check=False)
    if found.returncode:
        raise NoSuchCommit(f"no commit {ref!r} in this clone: name another by --from, or fetch it")
    commit = found.stdout.strip()
    tree = TREES / commit[:12]
    if not tree.exists():
        TREES.mkdir(parents=True, exist_ok=True)
        words = ["git", "worktree", "add", "--force", "--detach", str(tree), commit]
        subprocess.run(words, cwd=ROOT, capture_output=True, check=True)
    return tree


class MixedCrew(Crew):
    """Workers of two commits in turn."""

    tree: Path
    """The earlier one's sources."""
    started = 0

    def environment(self) -> dict[str, str]:
        self.started += 1
        if self.started % 2:
            return {}
        return {"PYTHONPATH": str(self.tree / "src")}


class Upgrade(Trial):
    """A trial with workers of ``tree`` and of this one."""

    def __init__(self, store: str, plan: Plan, *, seed: int, tree: Path) -> None:
        super().__init__(store, plan, seed=seed)
        self.supervised = False
        self.tree = tree

    def crew(self, url: str, directory: Path) -> Crew:
        found = MixedCrew(url, directory, size=WORKERS, supervised=False)
        found.tree = self.tree
        return found

    def verdict(self, directory: Path, verdict: Verdict) -> Verdict:
        """Both commits must have handled messages, or the trial says nothing."""
        places = [path.read_text() for path in directory.glob("tree-*")]
        old = sum(Path(place).is_relative_to(self.tree) for place in places)
        verdict.done["processes of the earlier commit"] = old
        verdict.done["processes of this commit"] = len(places) - old
        if not 0 < old < len(places):
            verdict.failures.append(f"{old} of {len(places)} processes were of the earlier commit")
        return verdict
