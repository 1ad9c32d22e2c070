"""Servers to read from, and what tests put into them."""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import redis


class Headwater:
    """Our own server as a user starts it, on a free port."""

    def __init__(self) -> None:
        self._directory = tempfile.mkdtemp(prefix="hw-spark-")
        command = [sys.executable, "-m", "headwater.cli.main", "serve", "--port", "0"]
        self.process = subprocess.Popen(
            [*command, "--appendfsync", "no", "--dir", self._directory],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        found = re.search(r"127\.0\.0\.1:(\d+)", line)
        assert found, f"headwater serve said {line!r}"
        self.url = f"redis://127.0.0.1:{found[1]}"

    def stop(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(20) == 0
        shutil.rmtree(self._directory, ignore_errors=True)


@dataclass
class Shop:
    """A store with a client. ``name`` says which kind it is."""

    name: str
    url: str
    client: redis.Redis

    def add(self, stream: str, numbers: Iterable[int], **fields: Any) -> None:
        """Entries with the ids ``<number>-1`` and the field ``n``."""
        pipeline = self.client.pipeline(transaction=False)
        for number in numbers:
            body: Any = {"n": number} | fields
            pipeline.xadd(stream, body, id=f"{number}-1")
        pipeline.execute()

    def delete(self, stream: str, *numbers: int) -> None:
        self.client.xdel(stream, *(f"{number}-1" for number in numbers))

    def numbers(self, stream: str) -> list[int]:
        """The ``n`` of every entry that lives."""
        entries: Any = self.client.xrange(stream)
        return [int(fields[b"n"]) for _id, fields in entries]
