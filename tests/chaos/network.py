"""A network that loses packets of one process: rules for its ports, in a network namespace of the job's own."""

from __future__ import annotations

import os
import subprocess
from contextlib import suppress
from pathlib import Path

LOSING = ("-m", "statistic", "--mode", "random", "--probability")


def ports(pid: int) -> set[int]:
    """All TCP ports this process has, listening or connected; none once it is gone."""
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
                if fields[9] in inodes:
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


def _iptables(what: str, rule: list[str]) -> None:
    subprocess.run(["iptables", "-w", what, *rule], check=True, capture_output=True)
