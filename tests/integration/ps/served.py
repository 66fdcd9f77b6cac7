"""One ps as a process of its own, without a master: connections to it, and its memory, threads and descriptors."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from elasticdl.ps.server.ps_server import PsServer
from elasticdl.ps.slots import SlotMap
from elasticdl.ps.tables.state import PsState
from elasticdl.ps.wire.connections import PsConnections
from elasticdl.ps.wire.keys import CurveKeys
from elasticdl.ps.wire.messages import MessageKind, PsMessage, ReplyStatus
from elasticdl.spec import PsId

PS = PsId("ps-0")
TOKEN = "token"


class Served:
    """It, seen from outside."""

    def __init__(self, pid: int, address: str, keys: CurveKeys | None) -> None:
        self.pid = pid
        self.address = address
        self.keys = keys

    @property
    def port(self) -> int:
        return int(self.address.rpartition(":")[2])

    @property
    def descriptors(self) -> int:
        return len(os.listdir(f"/proc/{self.pid}/fd"))

    @property
    def memory_bytes(self) -> int:
        status = Path(f"/proc/{self.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) << 10 for line in status if line.startswith("VmRSS"))

    @property
    def threads(self) -> int:
        return len(os.listdir(f"/proc/{self.pid}/task"))

    @property
    def cpu_s(self) -> float:
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    @contextmanager
    def connections(self, timeout_s: float = 60.0) -> Iterator[PsConnections]:
        """Opens connections with the token and the keys of the job, as a worker does."""
        connections = PsConnections({PS: self.address}, TOKEN, timeout_s, self.keys).open()
        try:
            yield connections
        finally:
            connections.close()

    def answers(self, connections: PsConnections) -> bool:
        return connections.request(PS, PsMessage(MessageKind.STATUS, 0)).status is ReplyStatus.OK


@contextmanager
def serving(keys: CurveKeys | None = None) -> Iterator[Served]:
    argv = [sys.executable, "-m", "tests.integration.ps.served"]
    process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdin is not None and process.stdout is not None
    try:
        process.stdin.write(json.dumps(keys and keys._asdict()) + "\n")
        process.stdin.flush()
        yield Served(process.pid, process.stdout.readline().strip(), keys)
        assert process.poll() is None, "it has lived on"
    finally:
        process.stdin.close()
        process.stdout.close()
        process.wait(30)


def main() -> None:
    curve_keys = json.loads(sys.stdin.readline())
    holdings = PsState(PS, seed=1)
    holdings.set_slot_map(SlotMap.initial([PS]))
    server = PsServer(
        holdings, TOKEN, "127.0.0.1", threads=2, keys=CurveKeys(**curve_keys) if curve_keys else None
    ).start()
    print(server.address, flush=True)
    sys.stdin.read()
    os._exit(0)


if __name__ == "__main__":
    main()
