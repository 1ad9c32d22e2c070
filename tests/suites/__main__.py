"""``python -m tests.suites [--only multi,redis-py/test_pipeline]``: run the suites, compare, write the page."""

from __future__ import annotations

import argparse
import json
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.peers import PeerMissing
from tests.suites import page, sources
from tests.suites.differences import (
    NOT_RUN,
    PATH,
    Explained,
    Explanation,
    compare,
    explain,
    read,
    stale,
)
from tests.suites.page import Result
from tests.suites.running import MODULES, UNITS, Outcome, Outcomes, run_module, run_unit, serving
from tests.suites.sources import SERVERS
from tools.peers import PeerUnavailable

PREFIX = "redis-py/"

FILES = (*UNITS, *(f"{PREFIX}{place}{name}" for place in ("", "asyncio/") for name in MODULES))


def main(arguments: list[str]) -> int:
    """Run, compare, and return 1 if a difference has no explanation or an explanation no difference."""
    parser = argparse.ArgumentParser(prog="python -m tests.suites", description=__doc__)
    parser.add_argument("--only", help="names of files, separated by commas; writes no page")
    parser.add_argument(
        "--last", action="store_true", help="compare the outcomes of the last run again"
    )
    options = parser.parse_args(arguments)
    only = options.only
    files = only.split(",") if only else list(FILES)
    if unknown := [name for name in files if name not in FILES]:
        parser.error(f"unknown: {', '.join(unknown)}; there are {', '.join(FILES)}")
    explanations = read(PATH.read_text(encoding="utf-8"))
    try:
        suite, client = sources.redis_suite(), sources.redis_py()
        prepared = {server: sources.prepared(suite, server) for server in SERVERS}
    except (PeerUnavailable, PeerMissing) as problem:
        print(f"the suites cannot run here: {problem}")
        return 1
    results, explained = [], list[Explained]()
    for file in files:
        if not options.last:
            run(file, prepared, client, explanations)
        result = compared(file)
        results.append(result)
        explained += explain(result.findings, explanations)
        print(f"{file}: {result.tests} tests, {result.same} with the same outcome", flush=True)
    if not only:
        names = (suite.name.removeprefix("redis-"), client.name.replace("redis-", "redis-py "))
        page.write(page.page(results, explanations, *names))
    return judge(explained, explanations, files, is_complete=not only)


def compared(file: str) -> Result:
    """Compare the outcomes of the last run of a file."""
    outcomes = json.loads(_saved(file).read_text(encoding="utf-8"))
    ours, theirs = (
        {name: Outcome(*one) for name, one in outcomes[server].items()} for server in SERVERS
    )
    same = sum(ours.get(name, NOT_RUN).status == one.status for name, one in theirs.items())
    return Result(file, len(theirs), same, compare(file, theirs, ours))


def _saved(file: str) -> Path:
    return sources.DIRECTORY / "outcomes" / f"{file.replace('/', '-')}.json"


def run(
    file: str, prepared: dict[str, Path], client: Path, explanations: list[Explanation]
) -> None:
    """Run a file on both servers, and save the outcomes. A test without explanation runs again: on a busy machine it may be late."""
    runs = [run_both(file, prepared, client)]
    if unexplained(file, runs[0][0], runs[0][1], explanations):
        runs.append(run_both(file, prepared, client))
        runs.sort(key=lambda one: unexplained(file, one[0], one[1], explanations))
    theirs, ours = (better(*sides) for sides in zip(*runs, strict=True)) if runs[1:] else runs[0]
    _saved(file).parent.mkdir(parents=True, exist_ok=True)
    _saved(file).write_text(json.dumps({"redis-8.2": theirs, "headwater": ours}), encoding="utf-8")


def unexplained(
    file: str, theirs: Outcomes, ours: Outcomes, explanations: list[Explanation]
) -> int:
    """Return the number of differences without explanation."""
    explained = explain(compare(file, theirs, ours), explanations)
    return sum(one.explanation is None for one in explained)


def better(first: Outcomes, second: Outcomes) -> Outcomes:
    """Return the outcomes of the first run, where the second one did not pass a test that the first did not."""
    passed = {name for name, one in second.items() if one.status == "ok"}
    return {name: second[name] if name in passed else one for name, one in first.items()}


def run_both(file: str, prepared: dict[str, Path], client: Path) -> tuple[Outcomes, Outcomes]:
    """Return the outcomes of a file on Redis and on Headwater."""

    def one(server: str) -> Outcomes:
        if file in UNITS:
            return run_unit(prepared[server], file)
        with serving(server) as port:
            return run_module(client, file.removeprefix(PREFIX), port)

    with ThreadPoolExecutor() as threads:
        ours, theirs = threads.map(one, SERVERS)
    return theirs, ours


def judge(
    explained: list[Explained],
    explanations: list[Explanation],
    files: list[str],
    *,
    is_complete: bool,
) -> int:
    """Print what is wrong, and return 1 if anything is."""
    problems = []
    for finding, explanation, _command in explained:
        if explanation is None:
            why = " ".join(finding.ours.why.split())[:300]
            outcome = f"{finding.theirs} on Redis, {finding.ours.status} on Headwater"
            problems.append(f"unexplained: {finding.file}: {finding.test}: {outcome}: {why}")
    old = stale(explanations, explained, files)
    if not is_complete:
        old = (text for text in old if not text.startswith(("command: ", "error: ")))
    problems += [f"explained, but does not differ: {text}" for text in old]
    print("\n".join(problems) or "every difference is explained")
    return int(bool(problems))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
