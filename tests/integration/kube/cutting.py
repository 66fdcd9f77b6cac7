"""A TCP proxy whose connections can be cut at once, and which can refuse new ones."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from typing import Self


class Cutter:
    def __init__(self, port: int) -> None:
        self._target = port
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._server.getsockname()[1])
        self._open: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept)]
        self._lock = threading.Lock()

    def __enter__(self) -> Self:
        self._threads[0].start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        self._threads[0].join()
        self.cut()
        for thread in self._threads:
            thread.join()
        for end in self._open:
            end.close()

    def cut(self) -> int:
        """Cut all connections; how many there were."""
        with self._lock:
            ends = [end for end in self._open if end.fileno() >= 0]
            for end in ends:
                with suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)
        return len(ends) // 2

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                near, _ = self._server.accept()
                far = socket.create_connection(("127.0.0.1", self._target))
                with self._lock:
                    self._open += [near, far]
                    for source, sink in ((near, far), (far, near)):
                        thread = threading.Thread(target=self._pump, args=(source, sink))
                        self._threads.append(thread)
                        thread.start()

    def _pump(self, source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            while piece := source.recv(1 << 16):
                sink.sendall(piece)
        for end in (source, sink):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
