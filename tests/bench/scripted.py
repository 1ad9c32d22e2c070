"""A server that answers by script, for what no real one would say."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

REQUEST_BYTES = 65536


@contextmanager
def scripted(*answers: Sequence[bytes]) -> Iterator[int]:
    """Listens at the port it gives: one connection, which gets the pieces of an answer for each
    request that arrives, and stays open until the client closes it."""
    listener = socket.create_server(("127.0.0.1", 0))
    thread = threading.Thread(target=_serve, args=(listener, answers), daemon=True)
    thread.start()
    try:
        yield listener.getsockname()[1]
    finally:
        with socket.socket() as nobody:  # wakes an accept() that no client came to
            nobody.connect_ex(listener.getsockname())
        thread.join(30)
        listener.close()


def _serve(listener: socket.socket, answers: Sequence[Sequence[bytes]]) -> None:
    connection, _ = listener.accept()
    with connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            for pieces in answers:
                if not connection.recv(REQUEST_BYTES):
                    return
                for piece in pieces:
                    connection.sendall(piece)
            while connection.recv(REQUEST_BYTES):
                pass
        except OSError:
            pass  # the client has ended, as it should at an error
