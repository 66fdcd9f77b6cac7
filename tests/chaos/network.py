"""Faults of the network of one process, in the network namespace of its job: lost packets, strangers at its ports."""

from __future__ import annotations

import os
import socket
import subprocess
from collections import deque
from contextlib import suppress
from pathlib import Path

MAX_STRANGERS = 200  # at one port at a time
_VISITS_PER_TICK = 3  # new connections to each port
_GARBAGE_BYTES = 4096  # bytes at once
RANDOM_MATCH = ("-m", "statistic", "--mode", "random", "--probability")
_LISTEN_STATE = "0A"  # the state of a socket in /proc/net/tcp


def ports(pid: int, *, listening: bool = False) -> set[int]:
    """Returns all TCP ports of a process, or only those it listens on; none once it has ended."""
    inodes = set()
    with suppress(OSError):
        for entry in os.scandir(f"/proc/{pid}/fd"):
            with suppress(OSError):
                target = os.readlink(entry.path)
                if target.startswith("socket:["):
                    inodes.add(target[8:-1])
    numbers = set()
    for table in ("tcp", "tcp6"):
        with suppress(OSError):
            for line in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
                fields = line.split()
                if fields[9] in inodes and (fields[3] == _LISTEN_STATE or not listening):
                    numbers.add(int(fields[1].rpartition(":")[2], 16))
    return numbers


class Loss:
    """Drops packets to or from the ports of a process, with a probability, from `refresh` to `end`."""

    def __init__(self, pid: int, *, inward: bool, outward: bool, probability: float) -> None:
        self._pid = pid
        self._directions = [flag for flag, is_dropped in (("--dport", inward), ("--sport", outward)) if is_dropped]
        self._probability = probability
        self._rules: list[list[str]] = []
        self._ports: set[int] = set()

    def refresh(self) -> None:
        """Also drops packets of the ports that the process has opened since."""
        for port in ports(self._pid) - self._ports:
            self._ports.add(port)
            for flag in self._directions:
                rule = ["INPUT", "-p", "tcp", flag, str(port), *RANDOM_MATCH, f"{self._probability:.3f}", "-j", "DROP"]
                _iptables("-A", rule)
                self._rules.append(rule)

    def end(self) -> None:
        for rule in self._rules:
            _iptables("-D", rule)
        self._rules.clear()


class Strangers:
    """Connects to every port a process listens on: a third of the connections are silent, a third send a byte now and
    then, a third send garbage. Connections that the process closes are replaced.
    """

    def __init__(self, pid: int) -> None:
        self._connections = {port: deque[tuple[int, socket.socket]]() for port in ports(pid, listening=True)}
        self.count = 0

    def tick(self) -> None:
        for port, connections in self._connections.items():
            for _ in range(_VISITS_PER_TICK):
                if len(connections) >= MAX_STRANGERS:
                    connections.popleft()[1].close()
                self._connect(port, connections)
            for number, connection in connections:
                with suppress(OSError):  # not connected yet, or closed: it will be replaced
                    if number % 3:
                        connection.send(os.urandom(1 if number % 3 == 1 else _GARBAGE_BYTES))

    def _connect(self, port: int, connections: deque[tuple[int, socket.socket]]) -> None:
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


def _iptables(action: str, rule: list[str]) -> None:
    subprocess.run(["iptables", "-w", action, *rule], check=True, capture_output=True)
