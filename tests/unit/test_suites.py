"""What `make suites` compares: outcomes are read, and neither an unexplained difference nor a stale explanation passes."""

from __future__ import annotations

import pytest

from tests.suites import __main__ as suites
from tests.suites import page, sources
from tests.suites.differences import PATH, compare, explain, read, stale, unknown_command
from tests.suites.page import Result
from tests.suites.running import MODULES, UNITS, Outcome, Outcomes, read_junit, read_tcl

PRINTED = """\
\x1b[1;37;49mTesting unit/multi\x1b[0m
[\x1b[0;32;49mok\x1b[0m]: MULTI works (3 ms)
[\x1b[0;31;49merr\x1b[0m]: SORT is watched in tests/unit/multi.tcl
n command 'sort', with args beginning with: 'l'
ERR unknown command 'sort', with args beginning with: 'l'
[ok]: MULTI works (0 ms)
[ignore]: large: needs memory
[exception]: Executing test client: closed.
[1/1 done]: unit/multi (3 seconds)

!!! WARNING The following tests failed:

*** [err]: SORT is watched in tests/unit/multi.tcl
"""

REPORT = """\
<testsuites><testsuite name="pytest">
<testcase classname="tests.test_pipeline.TestPipeline" name="test_a[single]" />
<testcase classname="tests.test_pipeline.TestPipeline" name="test_b">
<failure message="unknown command 'ZADD'">line 7</failure></testcase>
<testcase classname="tests.test_pipeline.TestPipeline" name="test_c"><skipped message="old" /></testcase>
<testcase classname="tests.test_pipeline.TestPipeline" name="test_d"><error message="no server">x</error></testcase>
</testsuite></testsuites>
"""

EXPLANATIONS = """
[[missing]]
commands = ["sort", "client|kick"]
reason = "no sorting"

[[missing]]
commands = ["zadd"]
files = ["multi", "pause"]
tests = ["hidden"]
reason = "an error that does not name it"

[[design]]
error = "immutable config"
adr = 7
reason = "set at the start"
"""

OK = Outcome("ok")
SORT = Outcome("err", "ERR unknown command 'sort', with args beginning with: 'l'")


def test_outcomes_of_redis_s_runner_are_read() -> None:
    found = read_tcl(PRINTED)
    assert {name: one.status for name, one in found.items()} == {
        "MULTI works": "ok",
        "SORT is watched": "err",
        "MULTI works #2": "ok",
        "large: needs memory": "skip",
        "Executing test client: closed.": "err",
    }
    assert unknown_command(found["SORT is watched"].why) == "sort"


def test_outcomes_of_pytest_are_read() -> None:
    found = read_junit(REPORT)
    assert [(name, one.status) for name, one in found.items()] == [
        ("TestPipeline.test_a[single]", "ok"),
        ("TestPipeline.test_b", "err"),
        ("TestPipeline.test_c", "skip"),
        ("TestPipeline.test_d", "err"),
    ]
    assert unknown_command(found["TestPipeline.test_b"].why) == "zadd"


@pytest.mark.parametrize(
    ("error", "command"),
    [
        ("ERR unknown command 'SYNC', with args beginning with: ", "sync"),
        ("(\"unknown command \\'ZADD\\', with args beginning with: \\'z\\'\",)", "zadd"),
        ("ERR unknown subcommand 'load'. Try FUNCTION HELP.", "function|load"),
        ("ERR unknown subcommand or wrong number of arguments for 'x'. Try DEBUG HELP.", "debug|x"),
        ("ERR Command 'MIGRATE' not found", "migrate"),
        ("ERR Unknown Redis command called from script", ""),
        ("Expected '1' to be equal to '2'", ""),
    ],
)
def test_the_unknown_command_is_found_in_an_error(error: str, command: str) -> None:
    assert unknown_command(error) == command


def problems(theirs: Outcomes, ours: Outcomes, text: str = EXPLANATIONS) -> list[str]:
    """Return the tests without an explanation, and the explanations without a test."""
    explanations = read(text)
    explained = explain(compare("multi", theirs, ours), explanations)
    unexplained = [one.finding.test for one in explained if one.explanation is None]
    return [*unexplained, *stale(explanations, explained, ["multi"])]


EXPLAINED: Outcomes = {
    "a": SORT,
    "b": Outcome("err", "ERR unknown subcommand 'kick'. Try CLIENT HELP."),
    "hidden #2": Outcome("err", "Expected '1' to be equal to '2'"),
    "c": Outcome("err", "ERR CONFIG SET failed - can't set immutable config"),
    "d": Outcome("err"),
    "e": OK,
}
REFERENCE: Outcomes = dict.fromkeys(EXPLAINED, OK) | {"d": Outcome("err"), "e": Outcome("skip")}


def test_explained_same_and_better_outcomes_pass() -> None:
    assert problems(REFERENCE, EXPLAINED) == []


@pytest.mark.parametrize("ours", [Outcome("err", "Expected 1"), Outcome("skip", "old"), None])
def test_a_difference_without_explanation_fails(ours: Outcome | None) -> None:
    assert problems({**REFERENCE, "new": OK}, EXPLAINED | ({"new": ours} if ours else {})) == [
        "new"
    ]


def test_an_unknown_command_that_is_not_listed_fails() -> None:
    unknown = Outcome("err", "ERR unknown command 'zadd', with args beginning with: 'z'")
    assert problems({**REFERENCE, "new": OK}, {**EXPLAINED, "new": unknown}) == ["new"]


@pytest.mark.parametrize(
    ("test", "expected"),
    [
        ("a", "command: sort"),
        ("b", "command: client|kick"),
        ("c", "error: immutable config"),
        ("hidden #2", "multi: hidden"),
    ],
)
def test_an_explanation_of_what_no_longer_differs_fails(test: str, expected: str) -> None:
    assert problems(REFERENCE, {**EXPLAINED, test: OK}) == [expected]


def test_tests_that_did_not_run_have_the_error_that_ended_their_block() -> None:
    theirs = dict.fromkeys("abcdef", OK)
    ended = sources.ENDED_EARLY
    ours = {"a": OK, ended: SORT, "d": OK, f"{ended} #2": Outcome("err", "Expected 1"), "f": OK}
    found = explain(compare("multi", theirs, ours), read(EXPLANATIONS))
    assert [(one.finding.test, one.command) for one in found] == [
        ("b", "sort"),
        ("c", "sort"),
        ("e", ""),
    ]
    assert found[-1].explanation is None


@pytest.mark.parametrize(
    "text",
    [
        '[[missing]]\nreason = "x"\ntests = ["t"]\nfiles = ["f"]',
        '[[missing]]\nreason = "x"\ncommands = ["c"]\ntests = ["t"]',
        '[[design]]\nreason = "x"',
        '[[design]]\nreason = "x"\ncommands = ["c"]',
        '[[other]]\nreason = "x"\nerror = "e"',
        '[[design]]\nreason = "x"\nerror = "e"',
        '[[design]]\nreason = "x"\nerror = "e"\nadr = 1\nguide = "server.md"',
    ],
)
def test_an_incomplete_explanation_is_an_error(text: str) -> None:
    with pytest.raises(ValueError):
        read(text)


def test_a_run_with_problems_fails(capsys: pytest.CaptureFixture[str]) -> None:
    explanations = read(EXPLANATIONS)
    explained = explain(
        compare("multi", {"a": OK}, {"a": Outcome("err", "Expected 1")}), explanations
    )
    assert suites.judge(explained, explanations, ["multi"], is_complete=True) == 1
    printed = capsys.readouterr().out
    assert "unexplained: multi: a: ok on Redis, err on Headwater: Expected 1" in printed
    assert "explained, but does not differ: command: sort" in printed
    assert suites.judge([], [], ["multi"], is_complete=True) == 0


def test_a_test_that_passes_in_one_of_two_runs_has_passed() -> None:
    late, early = Outcome("err", "too late"), Outcome("err", "too early")
    first, second = {"a": OK, "b": late, "c": late}, {"a": late, "b": OK, "c": early, "d": late}
    assert suites.better(first, second) == {"a": OK, "b": OK, "c": late}


def test_the_page_counts_each_test_once_and_names_what_is_missing() -> None:
    findings = compare("multi", REFERENCE, EXPLAINED)
    text = page.page(
        [Result("multi", 6, 1, findings)], read(EXPLANATIONS), "8.0.6", "redis-py 8.1.0"
    )
    assert "| multi | 6 | 1 | 1 | 3 | 1 | 0 |" in text
    assert "| SORT, CLIENT KICK | 2 | no sorting |" in text
    assert "- set at the start ([ADR 7](../adr/0007-journal.md)): 1\n    - `multi: c`" in text
    assert "- `multi: e` (skip, ok)" in text


def test_the_explanations_of_this_repository_can_be_read() -> None:
    files = {*suites.FILES}
    assert len(files) == len(UNITS) + 2 * len(MODULES)
    found = read(PATH.read_text(encoding="utf-8"))
    assert found
    assert all(one.reason and set(one.files) <= files for one in found)
    for one in found:  # a page of the guide has the section that an explanation names
        name, _, section = one.guide.partition("#")
        text = (sources.ROOT / "docs/guide" / name).read_text(encoding="utf-8") if name else ""
        assert not name or f"# {section.replace('-', ' ')}\n" in text.lower()
    commands = [name for one in found if not one.tests and not one.error for name in one.commands]
    assert len(commands) == len(set(commands))
