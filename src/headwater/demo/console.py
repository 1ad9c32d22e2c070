"""Prints the demo's steps and progress: with bars on a terminal, as plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

LINE_SECONDS = 3.0
"""Minimum time between two lines of progress without a terminal, in seconds."""

Advance = Callable[[Mapping[str, int]], None]
"""Function that updates the counts of `DemoConsole.progress`."""


class DemoConsole:
    """Prints steps and progress. If ``terminal`` is None, standard output is checked for a terminal."""

    def __init__(self, *, terminal: bool | None = None) -> None:
        self._began = time.monotonic()
        self._steps = 0
        self._console: Console | None = None
        if sys.stdout.isatty() if terminal is None else terminal:
            from rich.console import Console

            self._console = Console(highlight=False, force_terminal=terminal)

    @property
    def seconds(self) -> float:
        """Seconds since the demo began."""
        return time.monotonic() - self._began

    def step(self, text: str) -> None:
        """Print the title of the next step."""
        self._steps += 1
        self._print(f"{self._steps}. {text}", style="bold")

    def say(self, text: str) -> None:
        """Print a line within a step."""
        self._print(f"   {text}")

    def block(self, text: str) -> None:
        """Print lines without indentation."""
        self._print(text)

    @contextmanager
    def progress(self, totals: Mapping[str, int]) -> Iterator[Advance]:
        """Show the progress of each count up to its total. Yields the function that updates the counts."""
        if self._console is None:
            yield self._lines(totals)
            return
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
        from rich.progress import TimeElapsedColumn as Elapsed

        columns = (TextColumn("   {task.description:<10}"), BarColumn(), MofNCompleteColumn())
        with Progress(*columns, Elapsed(), console=self._console) as bars:
            tasks = {name: bars.add_task(name, total=total) for name, total in totals.items()}

            def advance(counts: Mapping[str, int]) -> None:
                for name, count in counts.items():
                    bars.update(tasks[name], completed=count)

            yield advance

    def _lines(self, totals: Mapping[str, int]) -> Advance:
        printed = time.monotonic()

        def advance(counts: Mapping[str, int]) -> None:
            nonlocal printed
            if time.monotonic() - printed >= LINE_SECONDS:
                printed = time.monotonic()
                far = (f"{name} {counts[name]:,} of {totals[name]:,}" for name in counts)
                self.say(f"{self.seconds:5.1f} s  {', '.join(far)}")

        return advance

    def _print(self, text: str, *, style: str | None = None) -> None:
        if self._console is None:
            print(text, flush=True)
        else:
            self._console.print(text, style=style, markup=False, soft_wrap=True)
