"""A server that sends scripted replies, including those that a real server would not send."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

REQUEST_BYTES = 65536


@contextmanager
def scripted(*answers: Sequence[bytes]) -> Iterator[int]:
    """Yield a port at which one connection is accepted. It gets the pieces of one reply for each request
    that arrives, and stays open until the client closes it."""
    listener = socket.create_server(("127.0.0.1", 0))
    thread = threading.Thread(target=_serve, args=(listener, answers), daemon=True)
    thread.start()
    try:
        yield listener.getsockname()[1]
    finally:
        with socket.socket() as waker:  # ends an accept() without a client
            waker.connect_ex(listener.getsockname())
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
            pass  # the client has closed the connection, as it must after an error
