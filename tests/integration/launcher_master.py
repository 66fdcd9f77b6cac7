"""A master for the launcher's tests: it forwards messages between the launcher and the test.

Run as `python -m tests.integration.launcher_master JOB_DIRECTORY --launcher-fd N --run M`. It connects to the test's
socket in the job directory and says its pid first. When its launcher dies it adopts a new one, as the real master does.
"""

from __future__ import annotations

import os
import select
import socket
import sys
from pathlib import Path

from elasticdl.launcher.local import processes, wire
from elasticdl.spec.directory import JobDirectory, write_private_file

MODULE = "tests.integration.launcher_master"


def main(root: Path, launcher_fd: int, run: int) -> None:
    directory = JobDirectory(root)
    if (root / "crash").exists():
        sys.exit("this master crashes as it was told to")
    write_private_file(directory.master, f'{{"pid": {os.getpid()}}}')
    launcher = socket.socket(fileno=launcher_fd)
    with socket.socket(socket.AF_UNIX) as test:
        test.connect(str(root / "test.sock"))
        test.sendall(wire.encode_line({"pid": os.getpid()}))
        while True:
            for end in select.select([launcher, test], [], [])[0]:
                received = end.recv(1 << 16)
                if received:
                    (test if end is launcher else launcher).sendall(received)
                elif end is test:
                    return
                else:
                    launcher.close()
                    launcher = processes.replace_launcher(directory, run, master=MODULE)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[3]), int(sys.argv[5]))
