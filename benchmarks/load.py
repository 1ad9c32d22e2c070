"""A light load generator: ready-made requests over many connections, one thread, one epoll.

The client's own work is the same for every server; what it costs shows in the operations a second of
all of them, so the tables give the server's processor time per operation as well.
"""

from __future__ import annotations

import select
import socket
from time import perf_counter

from headwater.resp.arguments import Arguments


def request(*words: bytes) -> bytes:
    """One request, encoded."""
    return bytes(Arguments.of(*words).buffer)


def connect(host: str, port: int) -> socket.socket:
    made = socket.create_connection((host, port))
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return made


def ask(link: socket.socket, payload: bytes, *, lines: int) -> bytes:
    """Send ``payload`` and receive an answer of so many lines."""
    link.sendall(payload)
    answer = b""
    while answer.count(b"\n") < lines:
        received = link.recv(1 << 20)
        if not received:
            raise ConnectionError("the server closed the connection under load")
        answer += received
    return answer


def pump(
    host: str, port: int, *, connections: int, payload: bytes, lines: int, seconds: float
) -> tuple[int, float]:
    """Send ``payload`` over each connection again and again, the next time when its answer of so
    many ``lines`` has come; how many answers came, and in how many seconds."""
    poll = select.epoll()
    links: dict[int, socket.socket] = {}
    missing: dict[int, int] = {}
    for _ in range(connections):
        link = connect(host, port)
        links[link.fileno()] = link
        missing[link.fileno()] = lines
        poll.register(link.fileno(), select.EPOLLIN)
    for link in links.values():
        link.sendall(payload)
    answers = 0
    start = perf_counter()
    end = start + seconds
    while (now := perf_counter()) < end:
        for number, _ in poll.poll(0.1):
            received = links[number].recv(1 << 18)
            if not received:
                raise ConnectionError("the server closed the connection under load")
            left = missing[number] - received.count(b"\n")
            if left <= 0:
                answers += 1
                left += lines
                links[number].sendall(payload)
            missing[number] = left
    taken = now - start
    poll.close()
    for link in links.values():
        link.close()
    return answers, taken
