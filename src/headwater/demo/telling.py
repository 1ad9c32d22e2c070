"""Tells what the demo does: with moving bars on a terminal, in plain lines anywhere else."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

LINE_SECONDS = 3.0
"""Between two lines of progress where there is no terminal."""

Advance = Callable[[Mapping[str, int]], None]
"""Says how far each of the counts is that `Teller.progress` was given."""


class Teller:
    """Prints the story. ``terminal`` is found out by itself unless it is given."""

    def __init__(self, *, terminal: bool | None = None) -> None:
        self._began = time.monotonic()
        self._steps = 0
        self._console: Console | None = None
        if sys.stdout.isatty() if terminal is None else terminal:
            from rich.console import Console

            self._console = Console(highlight=False, force_terminal=terminal)

    @property
    def seconds(self) -> float:
        """Since the story began."""
        return time.monotonic() - self._began

    def step(self, text: str) -> None:
        """Begin the next step."""
        self._steps += 1
        self._print(f"{self._steps}. {text}", style="bold")

    def say(self, text: str) -> None:
        """One line within a step."""
        self._print(f"   {text}")

    def block(self, text: str) -> None:
        """Lines that are printed as they are."""
        self._print(text)

    @contextmanager
    def progress(self, totals: Mapping[str, int]) -> Iterator[Advance]:
        """Show how far each count is; the block calls what it is given with the counts so far."""
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
