"""Bytes from and to a socket, in one system call.

Compiled modules take these functions from ``transfers_c.pxd``, which calls the system by the socket's
descriptor; plain Python takes the twins below, which ask the socket object. The caller holds the GIL
meanwhile: no socket of a server waits.
"""

from __future__ import annotations

from socket import socket


def receive_some(client: socket, _descriptor: int, space: bytearray) -> int:
    """Read once into ``space``: how many bytes, 0 at the end, -1 when there are none yet.

    Raises `OSError`.
    """
    try:
        return client.recv_into(space)
    except (BlockingIOError, InterruptedError):
        return -1


def send_some(client: socket, _descriptor: int, data: bytearray) -> int:
    """Give the socket what it takes of ``data``: how many bytes, -1 when it takes none now.

    Raises `OSError`.
    """
    try:
        return client.send(data)
    except (BlockingIOError, InterruptedError):
        return -1
