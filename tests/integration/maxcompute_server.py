"""A stand-in for MaxCompute: the few resources of its REST API that PyODPS requests. It computes nothing.

It keeps the statements it was sent, and answers each with rows that were given to it.
"""

from __future__ import annotations

import csv
import io
import json
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit
from xml.etree import ElementTree

_TASK = "<Task Type='SQL'><Name>AnonymousSQLTask</Name>"


class StandIn:
    """`columns` are of the one table; `rows` answer every SELECT."""

    def __init__(self, columns: dict[str, str], rows: Sequence[tuple[Any, ...]], fails: str = "") -> None:
        self.columns = columns
        self.rows = rows
        self.fails = fails  # with this text, if any
        self.statements: list[str] = []
        self.signed: list[str] = []

    def table(self) -> str:
        columns = [{"name": name, "type": kind} for name, kind in self.columns.items()]
        schema = json.dumps({"columns": columns, "partitionKeys": []})
        return f"<Table><Name>clicks</Name><Schema format='Json'><![CDATA[{schema}]]></Schema></Table>"

    def status(self) -> str:
        state = "Failed" if self.fails else "Success"
        return f"<Instance><Status>Terminated</Status><Tasks>{_TASK}<Status>{state}</Status></Task></Tasks></Instance>"

    def result(self, number: int) -> str:
        if self.fails:
            text = self.fails
        else:
            written = io.StringIO()
            is_read = self.statements[number].startswith("WITH")
            rows = [("k", "what", "v", "n", "x"), *self.rows] if is_read else []
            csv.writer(written).writerows([["\\N" if cell is None else cell for cell in row] for row in rows])
            text = written.getvalue()
        return f"<Instance><Tasks>{_TASK}<Result Format='csv'><![CDATA[{text}]]></Result></Task></Tasks></Instance>"


@contextmanager
def serve(stand_in: StandIn) -> Iterator[str]:
    """The endpoint."""

    class Pages(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            path, query = urlsplit(self.path)[2:4]
            stand_in.signed.append(self.headers.get("Authorization", ""))
            if "/tables/" in path:
                self._answer(stand_in.table())
            elif "/instances/" in path:
                number = int(path.rpartition("/")[2])
                is_result = query.startswith("result") or "&result" in query
                self._answer(stand_in.result(number) if is_result else stand_in.status())
            elif path.endswith("/tenants"):
                self._answer("{}", "")
            else:
                self._answer("<Project><Name>shop</Name></Project>")

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            query = ElementTree.fromstring(body).find(".//Query")
            assert query is not None
            stand_in.statements.append((query.text or "").strip().rstrip(";"))
            self.send_response(201)
            self.send_header("Location", f"{self.path.partition('?')[0]}/{len(stand_in.statements) - 1}")
            self.send_header("Content-Length", "0")
            self.end_headers()

        def _answer(self, text: str, head: str = "<?xml version='1.0'?>") -> None:
            body = f"{head}{text}".encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/xml")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            """Quiet."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Pages)
    thread = threading.Thread(target=server.serve_forever, name="maxcompute")
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/api"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
