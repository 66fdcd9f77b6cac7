"""A network that is no friend: it loses packets of one process, or strangers come to its ports.

In a network namespace of the job's own.
"""

from __future__ import annotations

import os
import socket
import subprocess
from collections import deque
from contextlib import suppress
from pathlib import Path

MOST_STRANGERS = 200  # at one port at a time
_MORE = 3  # of them with each look
_NONSENSE = 4096  # bytes at once
LOSING = ("-m", "statistic", "--mode", "random", "--probability")
_LISTENS = "0A"  # the state of a socket in /proc/net/tcp


def ports(pid: int, *, listening: bool = False) -> set[int]:
    """All TCP ports this process has, listening or connected, or only the former; none once it is gone."""
    inodes = set()
    with suppress(OSError):
        for entry in os.scandir(f"/proc/{pid}/fd"):
            with suppress(OSError):
                target = os.readlink(entry.path)
                if target.startswith("socket:["):
                    inodes.add(target[8:-1])
    found = set()
    for table in ("tcp", "tcp6"):
        with suppress(OSError):
            for line in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
                fields = line.split()
                if fields[9] in inodes and (fields[3] == _LISTENS or not listening):
                    found.add(int(fields[1].rpartition(":")[2], 16))
    return found


class Loss:
    """Packets to or from the ports of a process are dropped, with a probability, from `cover` to `end`."""

    def __init__(self, pid: int, *, inward: bool, outward: bool, probability: float) -> None:
        self._pid = pid
        self._directions = [flag for flag, wanted in (("--dport", inward), ("--sport", outward)) if wanted]
        self._probability = probability
        self._rules: list[list[str]] = []
        self._covered: set[int] = set()

    def cover(self) -> None:
        """All ports it has by now; once more and those are covered that it opened meanwhile."""
        for port in ports(self._pid) - self._covered:
            self._covered.add(port)
            for flag in self._directions:
                rule = ["INPUT", "-p", "tcp", flag, str(port), *LOSING, f"{self._probability:.3f}", "-j", "DROP"]
                _iptables("-A", rule)
                self._rules.append(rule)

    def end(self) -> None:
        for rule in self._rules:
            _iptables("-D", rule)
        self._rules.clear()


class Strangers:
    """Connections to every port a process listens on: a third says nothing, a third a byte now and then, a third
    nonsense. Where one is hung up on another comes.
    """

    def __init__(self, pid: int) -> None:
        self._connections = {port: deque[tuple[int, socket.socket]]() for port in ports(pid, listening=True)}
        self.count = 0

    def tick(self) -> None:
        for port, connections in self._connections.items():
            for _ in range(_MORE):
                if len(connections) >= MOST_STRANGERS:
                    connections.popleft()[1].close()
                self._come(port, connections)
            for number, connection in connections:
                with suppress(OSError):  # not connected yet, or hung up on: it is replaced in its turn
                    if number % 3:
                        connection.send(os.urandom(1 if number % 3 == 1 else _NONSENSE))

    def _come(self, port: int, connections: deque[tuple[int, socket.socket]]) -> None:
        with suppress(OSError):
            connection = socket.socket()
            connections.append((self.count, connection))
            connection.setblocking(False)
            connection.connect(("127.0.0.1", port))
        self.count += 1

    def end(self) -> None:
        for connections in self._connections.values():
            while connections:
                connections.pop()[1].close()


def _iptables(what: str, rule: list[str]) -> None:
    subprocess.run(["iptables", "-w", what, *rule], check=True, capture_output=True)
