"""A TCP proxy that can close all its connections at once."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from typing import Self


class InterruptingProxy:
    """Forwards connections to a port of this machine, within a `with` block."""

    def __init__(self, target_port: int) -> None:
        self._target_port = target_port
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._server.getsockname()[1])
        self._sockets: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept)]
        self._lock = threading.Lock()

    def __enter__(self) -> Self:
        self._threads[0].start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        self._threads[0].join()
        self.interrupt()
        for thread in self._threads:
            thread.join()
        for connection in self._sockets:
            connection.close()

    def interrupt(self) -> int:
        """Closes all connections and returns their number."""
        with self._lock:
            connections = [connection for connection in self._sockets if connection.fileno() >= 0]
            for connection in connections:
                with suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)
        return len(connections) // 2

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._server.accept()
                server = socket.create_connection(("127.0.0.1", self._target_port))
                with self._lock:
                    self._sockets += [client, server]
                    for source, sink in ((client, server), (server, client)):
                        thread = threading.Thread(target=self._forward, args=(source, sink))
                        self._threads.append(thread)
                        thread.start()

    def _forward(self, source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(1 << 16):
                sink.sendall(data)
        for connection in (source, sink):
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
