"""The demo's progress is readable on a terminal and in a log."""

from __future__ import annotations

import pytest

from headwater.demo import console as module


def test_a_log_gets_plain_lines(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LINE_SECONDS", 0.0)
    console = module.DemoConsole(terminal=False)
    console.step("publish")
    with console.progress({"published": 2000}) as advance:
        advance({"published": 1500})
    console.say("[done]")
    printed = capsys.readouterr().out
    assert printed.startswith("1. publish\n")
    assert "published 1,500 of 2,000\n" in printed
    assert printed.endswith("   [done]\n")
    assert "\x1b" not in printed


def test_a_log_is_not_flooded(capsys: pytest.CaptureFixture[str]) -> None:
    with module.DemoConsole(terminal=False).progress({"published": 2000}) as advance:
        for count in range(1000):
            advance({"published": count})
    assert capsys.readouterr().out == ""


def test_a_terminal_gets_bars_and_the_lines_between_them(
    capsys: pytest.CaptureFixture[str],
) -> None:
    console = module.DemoConsole(terminal=True)
    with console.progress({"published": 2000}) as advance:
        advance({"published": 2000})
        console.say("[killed]")
    printed = capsys.readouterr().out
    assert "2000/2000" in printed
    assert "[killed]" in printed
