"""A rolling upgrade: workers of an earlier commit and of this one share a group, under faults.

Every second process that starts runs the earlier commit, so the group is always mixed. This also covers
rolling an upgrade back. The worker is plain Python, so a worktree of the commit is all it needs.
"""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Final

from benchmarks.machine import ROOT
from tests.worker.chaos.load import Load
from tests.worker.chaos.trial import WORKERS, Plan, Trial, Verdict
from tests.worker.chaos.workers import Workers

TREES: Final = ROOT / "build" / "upgrade"

PLAN: Final = Plan(kills=80, pauses=20, cuts=10, server_kills=2, messages=20_000)
"""One minute, at two faults a second."""


class NoSuchCommit(Exception):
    """git does not know the commit, or the directory is not a clone."""


def tree_of(ref: str) -> Path:
    """The source tree of a commit, in a worktree that is kept for later runs."""
    command = ["git", "rev-parse", "--verify", "--quiet", f"{ref}^{{commit}}"]
    found = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if found.returncode:
        raise NoSuchCommit(
            f"no commit {ref!r} in this clone: pass another with --from, or fetch it"
        )
    commit = found.stdout.strip()
    tree = TREES / commit[:12]
    if not tree.exists():
        TREES.mkdir(parents=True, exist_ok=True)
        words = ["git", "worktree", "add", "--force", "--detach", str(tree), commit]
        subprocess.run(words, cwd=ROOT, capture_output=True, check=True)
    return tree


class MixedWorkers(Workers):
    """Workers of two commits in turn."""

    tree: Path
    """The source tree of the earlier commit."""
    started = 0

    def environment(self) -> dict[str, str]:
        self.started += 1
        if self.started % 2:
            return {}
        return {"PYTHONPATH": str(self.tree / "src")}


class Upgrade(Trial):
    """A trial with workers of ``tree`` and of this commit."""

    def __init__(self, store: str, plan: Plan, *, seed: int, tree: Path) -> None:
        super().__init__(store, plan, seed=seed)
        self.supervised = False
        self.tree = tree

    def workers(self, url: str, directory: Path) -> Workers:
        found = MixedWorkers(url, directory, size=WORKERS, supervised=False)
        found.tree = self.tree
        return found

    def verdict(self, directory: Path, load: Load, verdict: Verdict) -> Verdict:
        """Check that processes of both commits ran; otherwise the trial proves nothing."""
        places = [path.read_text() for path in directory.glob("tree-*")]
        old = sum(Path(place).is_relative_to(self.tree) for place in places)
        verdict.done["processes of the earlier commit"] = old
        verdict.done["processes of this commit"] = len(places) - old
        if not 0 < old < len(places):
            verdict.failures.append(f"{old} of {len(places)} processes were of the earlier commit")
        return verdict
