"""A server whose disk was full and has room again is told to be well by everything that says how it is."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
import redis

from headwater.cli.output import UNHEALTHY
from headwater.testing.server import ServerProcess
from tests.mounts import mounted
from tests.operations.test_server_metrics import page

pytestmark = pytest.mark.slow

SMALL_DISK = 'mount -t tmpfs -o size=48m,mode=700 none "$2" && shift 2 && exec "$@"'


class OnSmallDisk(ServerProcess):
    """A server whose data directory is a file system of its own, which only it sees."""

    def command(self) -> list[str]:
        return [*mounted(SMALL_DISK, self.directory, self.data), *super().command()]

    @property
    def filler(self) -> Path:
        """A file on that file system, seen through the server's process."""
        return Path(f"/proc/{self.pid}/root{self.data}/filler")

    def fill(self) -> None:
        """Leave no room."""
        with suppress(OSError), self.filler.open("ab", buffering=0) as file:
            while True:
                file.write(bytes(65536))


@pytest.fixture
def server(tmp_path: Path) -> Iterator[OnSmallDisk]:
    found = OnSmallDisk("--metrics", "127.0.0.1:0", "--appendfsync", "always", directory=tmp_path)
    found.start()
    yield found
    found.stop()


def test_a_disk_that_has_room_again_is_told_before_anything_is_written(
    server: OnSmallDisk, run_headwater: Callable[..., str]
) -> None:
    def explained(status: int) -> str:
        return run_headwater("explain", "--window", "0s", "--url", server.url, status=status)

    def examined() -> dict[str, bool]:
        printed = run_headwater("doctor", "s", "-o", "json", "--url", server.url, status=wrong)
        return {one["name"]: one["good"] for one in json.loads(printed)}

    with redis.Redis.from_url(server.url) as client:
        client.xgroup_create("s", "g", "$", mkstream=True)
        # Given a full disk, and a server that has met it
        server.fill()
        with pytest.raises(redis.ResponseError, match="MISCONF"):
            while True:
                client.set("filler", os.urandom(100_000))
        # Then everything says so
        wrong = UNHEALTHY
        assert page(server, "/readyz")[0] == 503
        assert "MISCONF" in explained(UNHEALTHY)
        assert "redis_aof_last_write_status 0.0" in page(server, "/metrics")[1]
        assert not examined()["writes"]

        # When there is room again, and nothing was written yet
        server.filler.unlink()
        # Then nothing says that it refuses writes
        wrong = 0
        assert page(server, "/readyz") == (200, '{"status": "ready", "problems": []}')
        assert "s, group g: healthy" in explained(0)
        assert "redis_aof_last_write_status 1.0" in page(server, "/metrics")[1]
        assert examined()["writes"]
        # And it takes them
        client.xadd("s", {"n": 1})
        assert page(server, "/readyz")[0] == 200
