"""Simulates several machines on one: network namespaces on a bridge, each of which can be silenced.

A silenced host's packets vanish, in both directions, without a FIN or a RST: what a pulled cable or a dead machine
looks like to the others. Needs root and iproute2; `missing_requirement` says what is missing.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Host:
    """One namespace. Run a command in it as `[*host.prefix, *command]`."""

    namespace: str
    address: str
    interface: str  # inside the namespace
    port: str  # the end of its cable on the bridge

    @property
    def prefix(self) -> list[str]:
        return ["ip", "netns", "exec", self.namespace]


@dataclass(frozen=True, slots=True)
class Network:
    """`address` and `interface` are this machine's own on the bridge."""

    address: str
    interface: str
    hosts: tuple[Host, ...]

    def silence(self, host: Host) -> None:
        # Off the bridge its frames lead nowhere, while both ends of the cable stay up.
        _ip("link", "set", host.port, "nomaster")


def missing_requirement() -> str | None:
    """Returns what prevents this machine from creating namespaces, or None."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    if shutil.which("ip") is None:
        return "the command `ip` (package iproute2) is not installed"
    try:
        with network(1):
            return None
    except subprocess.CalledProcessError as exc:
        return f"{' '.join(exc.cmd)}: {exc.stderr.strip()}"


@contextmanager
def network(hosts: int) -> Iterator[Network]:
    """Yields a bridge with `hosts` namespaces, and removes all of it afterwards."""
    tag = f"e{os.getpid() % 100_000}"
    subnet = f"10.{64 + os.getpid() % 128}.{os.getpid() // 128 % 256}"
    bridge = f"{tag}br"
    all_hosts = [
        Host(f"{tag}n{number}", f"{subnet}.{number + 2}", f"{tag}i{number}", f"{tag}p{number}")
        for number in range(hosts)
    ]
    try:
        _ip("link", "add", bridge, "type", "bridge")
        _ip("addr", "add", f"{subnet}.1/24", "dev", bridge)
        _ip("link", "set", bridge, "up")
        for host in all_hosts:
            _plug_in(host, bridge)
        yield Network(f"{subnet}.1", bridge, tuple(all_hosts))
    finally:
        for host in all_hosts:
            with suppress(subprocess.CalledProcessError):
                _ip("link", "del", host.port)
            with suppress(subprocess.CalledProcessError):
                _ip("netns", "del", host.namespace)
        with suppress(subprocess.CalledProcessError):
            _ip("link", "del", bridge)


def _plug_in(host: Host, bridge: str) -> None:
    _ip("netns", "add", host.namespace)
    _ip("link", "add", host.port, "type", "veth", "peer", "name", host.interface, "netns", host.namespace)
    _ip("link", "set", host.port, "master", bridge, "up")
    for command in (
        ["link", "set", "lo", "up"],
        ["addr", "add", f"{host.address}/24", "dev", host.interface],
        ["link", "set", host.interface, "up"],
    ):
        _ip("-n", host.namespace, *command)


def _ip(*arguments: str) -> None:
    command: Sequence[str] = ["ip", *arguments]
    subprocess.run(command, check=True, capture_output=True, text=True)


if __name__ == "__main__":
    print(missing_requirement() or "network namespaces work here")
