"""A real etcd and kube-apiserver on free ports, without kubelet, scheduler and controllers: tests act as those.

with ApiServer(tmp_path) as server:
    api = Api.connect()            # after monkeypatch.setenv("KUBECONFIG", str(server.kubeconfig()))
    server.kill(); server.start()  # a crash and a restart, with the same port and objects
"""

from __future__ import annotations

import fcntl
import json
import lzma
import os
import shutil
import socket
import ssl
import subprocess
import tempfile
import urllib.error
import urllib.request
from pathlib import Path
from typing import Self

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from tests.cluster.kube import ROOT, STARTER
from tests.waiting import until

ADMIN, NOBODY = "admin", "nobody"  # users: one with all rights, one with none
START_S = 90.0
UNPACKED = ROOT / "build" / "kubernetes"


def programs() -> Path | None:
    """Finds etcd and kube-apiserver in $KUBEBUILDER_ASSETS, $KUBE_HOME/bin, on the PATH, or packed by the starter."""
    home = Path(os.environ.get("KUBE_HOME", "/var/tmp/kube-here")) / "bin"
    on_path = shutil.which("kube-apiserver")
    for folder in (os.environ.get("KUBEBUILDER_ASSETS"), home, Path(on_path).parent if on_path else None):
        if folder and all((Path(folder) / program).exists() for program in ("etcd", "kube-apiserver")):
            return Path(folder)
    return _unpack(STARTER.with_name("kubeparts.xz"))


def _unpack(archive: Path) -> Path | None:
    """Unpacks the programs of the suite's cluster, which are one file with many names; None without such a file."""
    if not archive.is_file():
        return None
    folder = UNPACKED / f"{archive.stat().st_size}"
    UNPACKED.mkdir(parents=True, exist_ok=True)
    with open(UNPACKED / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # tests run in several processes
        if not folder.exists():
            with tempfile.TemporaryDirectory(dir=UNPACKED) as scratch:
                with lzma.open(archive) as packed, open(Path(scratch) / "programs", "wb") as target:
                    shutil.copyfileobj(packed, target, 1 << 20)
                (Path(scratch) / "programs").chmod(0o755)
                for name in ("etcd", "kube-apiserver", "kubectl", "helm"):
                    (Path(scratch) / name).symlink_to("programs")
                shutil.copytree(scratch, folder, symlinks=True)
    return folder


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


class ApiServer:
    """An API server in a `with` block. `kill` and `start` are a crash and a restart; etcd keeps running."""

    def __init__(self, folder: Path, *, checks_accounts: bool = False) -> None:
        """`checks_accounts`: the service account of a pod must exist, as in a cluster."""
        folder_of_programs = programs()
        assert folder_of_programs is not None, "no etcd and kube-apiserver: set KUBEBUILDER_ASSETS"
        self._programs = folder_of_programs
        self._folder = folder
        self._etcd_port, peer_port, self.port = free_port(), free_port(), free_port()
        etcd = f"http://127.0.0.1:{self._etcd_port}"
        peer = f"http://127.0.0.1:{peer_port}"
        self._etcd_command = ["etcd", "--data-dir", str(folder / "etcd"), "--unsafe-no-fsync", "--log-level", "error"]
        self._etcd_command += ["--listen-client-urls", etcd, "--advertise-client-urls", etcd]
        self._etcd_command += ["--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer]
        self._etcd_command += ["--initial-cluster", f"default={peer}"]
        self._command = ["kube-apiserver", "--etcd-servers", etcd, "--bind-address", "127.0.0.1"]
        self._command += ["--secure-port", str(self.port), "--service-cluster-ip-range", "10.96.0.0/16"]
        self._command += ["--cert-dir", str(folder / "certificates"), "--token-auth-file", str(folder / "tokens.csv")]
        self._command += ["--authorization-mode", "RBAC"]
        self._command += [] if checks_accounts else ["--disable-admission-plugins", "ServiceAccount"]
        self._command += ["--service-account-issuer", "https://kubernetes.default.svc"]
        self._command += ["--service-account-key-file", str(folder / "account.key")]
        self._command += ["--service-account-signing-key-file", str(folder / "account.key")]
        self._command += ["--advertise-address", "127.0.0.1", "--profiling=false"]
        self._etcd: subprocess.Popen[bytes] | None = None
        self._server: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self._folder.mkdir(parents=True, exist_ok=True)
        key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        text = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
        )
        (self._folder / "account.key").write_bytes(text)
        (self._folder / "tokens.csv").write_text(
            f'{ADMIN}-token,{ADMIN},1,"system:masters"\n{NOBODY}-token,{NOBODY},2\n'
        )
        self._etcd = self._spawn(self._etcd_command)
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        if self._etcd is not None:
            self._etcd.kill()
            self._etcd.wait()

    def start(self) -> None:
        """Starts the API server and waits until it is ready."""
        self._server = server = self._spawn(self._command)

        def log() -> str:
            return (self._folder / "kube-apiserver.log").read_text(errors="replace")[-3000:]

        until("kube-apiserver serves", lambda: self._is_ready() or server.poll() is not None, START_S, tell=log)
        assert server.poll() is None, f"kube-apiserver ended:\n{log()}"

    def kill(self) -> None:
        if self._server is not None:
            self._server.kill()
            self._server.wait()
            self._server = None

    def kubeconfig(self, user: str = ADMIN, port: int = 0, namespace: str = "default") -> Path:
        """Writes a kubeconfig. `port` is that of a proxy, if there is one."""
        cluster = {
            "server": f"https://127.0.0.1:{port or self.port}",
            "certificate-authority": str(self._folder / "certificates" / "apiserver.crt"),
        }
        document = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "here",
            "clusters": [{"name": "here", "cluster": cluster}],
            "users": [{"name": user, "user": {"token": f"{user}-token"}}],
            "contexts": [{"name": "here", "context": {"cluster": "here", "user": user, "namespace": namespace}}],
        }
        path = self._folder / f"{user}-{port}-{namespace}.kubeconfig"
        path.write_text(json.dumps(document))
        return path

    def _spawn(self, command: list[str]) -> subprocess.Popen[bytes]:
        with (self._folder / f"{command[0]}.log").open("ab") as log:
            argv = [str(self._programs / command[0]), *command[1:]]
            return subprocess.Popen(argv, stdout=log, stderr=log, stdin=subprocess.DEVNULL, cwd=self._folder)

    def _is_ready(self) -> bool:
        context = ssl._create_unverified_context()
        request = urllib.request.Request(f"https://127.0.0.1:{self.port}/readyz")
        request.add_header("Authorization", f"Bearer {ADMIN}-token")
        try:
            with urllib.request.urlopen(request, timeout=2, context=context) as response:
                return bool(response.status == 200)
        except (urllib.error.URLError, OSError):
            return False
