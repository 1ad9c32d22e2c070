"""Writes the reference pages that are generated: ``docs/reference/cli.md`` from the command line.

``python tools/reference.py`` writes; tests/tidy compares what it would write with what is there.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer
from typer.main import get_command

from headwater.cli.main import app

ROOT = Path(__file__).resolve().parent.parent
CLI_PAGE = ROOT / "docs" / "reference" / "cli.md"
WIDTH = 96

CLI_HEAD = """\
# The command line

Written by `make docs` from the program itself. The exit status is 0 when all went well, 1 when
Headwater reports an error (one line on standard error), 2 for a wrong command line and 130 after
Ctrl-C.
"""


def commands(command: Any, name: str, parent: Any = None) -> Iterator[tuple[str, Any]]:
    """Every command and word of words below ``command``, outer ones first, with its help text."""
    context = typer.Context(
        command, info_name=name, parent=parent, terminal_width=WIDTH, max_content_width=WIDTH
    )
    yield context.command_path, context
    if hasattr(command, "list_commands"):
        for word in command.list_commands(context):
            yield from commands(command.get_command(context, word), word, context)


def cli_page() -> str:
    """The whole page, as it should stand in the file."""
    parts = [CLI_HEAD]
    for path, context in commands(get_command(app), "headwater"):
        text = "\n".join(line.rstrip() for line in context.get_help().splitlines())
        parts.append(f"## `{path}`\n\n```text\n{text}\n```\n")
    return "\n".join(parts)


def main() -> None:
    """Write every generated page."""
    CLI_PAGE.parent.mkdir(parents=True, exist_ok=True)
    CLI_PAGE.write_text(cli_page(), encoding="utf-8")
    print(f"wrote {CLI_PAGE.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
