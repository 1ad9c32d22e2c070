"""The namespaces of the harness: partitions in both directions and one way, and nothing is left at the end."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest

from tests.failover import network as networks
from tests.failover.network import Loss, Network, ip

pytestmark = pytest.mark.slow

HEAR = """
import socket, sys
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
    sock.bind(("0.0.0.0", 5000))
    print("ready", flush=True)
    sock.settimeout(float(sys.argv[1]))
    try:
        print(sock.recv(10).decode(), flush=True)
    except TimeoutError:
        print("nothing", flush=True)
"""

SAY = """
import socket, sys
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
    try:
        sock.sendto(b"hello", (sys.argv[1], 5000))
    except OSError:
        pass
"""


@pytest.fixture
def net() -> Iterator[Network]:
    if not networks.permitted():
        pytest.skip("namespaces are not permitted")
    with networks.network(["a", "b", "c"]) as made:
        yield made


def reaches(net: Network, source: str, target: str) -> bool:
    """Whether a datagram from ``source`` arrives at ``target``."""
    hearing = net.command(target, [sys.executable, "-c", HEAR, "0.7"])
    with subprocess.Popen(hearing, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        saying = net.command(source, [sys.executable, "-c", SAY, net.host(target)])
        subprocess.run(saying, check=True, timeout=20)
        return process.stdout.readline() == "hello\n"


@pytest.mark.parametrize("loss", list(Loss))
def test_a_cut_separates_two_sides_until_it_is_healed(net: Network, loss: Loss) -> None:
    net.cut(["a"], ["b"], loss=loss)
    assert not reaches(net, "a", "b")
    assert not reaches(net, "b", "a")
    assert reaches(net, "a", "c")
    net.heal()
    assert reaches(net, "a", "b")
    assert reaches(net, "b", "a")


@pytest.mark.parametrize("loss", list(Loss))
def test_a_cut_can_be_one_way(net: Network, loss: Loss) -> None:
    net.cut(["a"], ["b", "c"], one_way=True, loss=loss)
    assert not reaches(net, "a", "b")
    assert reaches(net, "b", "a")
    assert reaches(net, "b", "c")


def test_the_harness_reaches_a_side_that_is_cut_off(net: Network) -> None:
    net.cut(["a"], ["b", "c"])
    listening = net.command("a", [sys.executable, "-m", "http.server", "5001"])
    with subprocess.Popen(
        listening, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as process:
        try:
            for _attempt in range(100):
                try:
                    socket.create_connection((net.host("a"), 5001), timeout=1).close()
                    break
                except ConnectionRefusedError:
                    threading.Event().wait(0.05)
            else:
                pytest.fail("it does not answer")
        finally:
            process.kill()


def test_nothing_is_left_after_a_failure() -> None:
    if not networks.permitted():
        pytest.skip("namespaces are not permitted")
    names: list[str] = []

    def fail() -> None:
        with networks.network(["a", "b"]) as net:
            names.extend([net.namespace("a"), net.namespace("b")])
            net.cut(["a"], ["b"])
            raise ValueError("planted")

    with pytest.raises(ValueError, match="planted"):
        fail()
    left = ip("netns", "list")
    assert not any(name in left for name in names)
    assert f"hwb{names[0].removeprefix('hw').partition('-')[0]}" not in ip("link")


def test_without_namespaces_each_side_has_a_port(capsys: pytest.CaptureFixture[str]) -> None:
    with networks.network(["a", "b"], loopback=True) as net:
        assert net.port("a") != net.port("b")
        assert net.command("a", ["true"]) == ["true"]
        assert not net.can_cut
    assert "no partitions" in capsys.readouterr().out
