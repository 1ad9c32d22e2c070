"""Entries suspected of killing their process run alone in it.

Rule 1. While a suspect runs, this process runs nothing else and owns nothing else that it has not
        finished: every consumer hands back what it has not begun and ends what it has.
Rule 2. One suspect at a time: another one is handed back meanwhile.
"""

from __future__ import annotations

import asyncio
from typing import Protocol


class Pausable(Protocol):
    """A consumer's loop, as the gate sees it."""

    async def pause(self) -> None:
        """Stop reading, hand back what is not begun, end what runs; return when that is done."""

    def resume(self) -> None:
        """Read again."""


class Gate:
    """The loops of one process, of which one at a time may ask for quiet."""

    def __init__(self) -> None:
        self.loops: list[Pausable] = []
        self._taken = False

    async def enter(self, loop: Pausable) -> bool:
        """Quieten all other loops. False when another is inside or on its way."""
        if self._taken:
            return False
        self._taken = True
        try:
            await asyncio.gather(*(one.pause() for one in self.loops if one is not loop))
        except BaseException:
            self.leave(loop)
            raise
        return True

    def leave(self, loop: Pausable) -> None:
        """Let all others go on."""
        self._taken = False
        for one in self.loops:
            if one is not loop:
                one.resume()
