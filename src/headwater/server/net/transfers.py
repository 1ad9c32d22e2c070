"""Receives from and sends to a socket, in one system call.

Compiled modules use the functions in ``transfers_c.pxd``, which pass the socket's descriptor to the
system, and hold the GIL during the call, because the server's sockets do not block. Plain Python uses the
functions below, which call the socket object.
"""

from __future__ import annotations

from socket import socket


def receive_some(client: socket, _descriptor: int, space: bytearray) -> int:
    """Read once into ``space``. Return the number of bytes, 0 at the end of input, -1 if none has
    arrived yet.

    Raises `OSError`.
    """
    try:
        return client.recv_into(space)
    except (BlockingIOError, InterruptedError):
        return -1


def send_some(client: socket, _descriptor: int, data: bytearray) -> int:
    """Send as much of ``data`` as the socket takes. Return the number of bytes, -1 if the socket is
    full.

    Raises `OSError`.
    """
    try:
        return client.send(data)
    except (BlockingIOError, InterruptedError):
        return -1
