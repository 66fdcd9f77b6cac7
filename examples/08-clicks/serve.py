"""The exported model as a service: rows as JSON in, chances out. Needs torch and NumPy, nothing of ElasticDL.

python serve.py ctr-ctr/model 8000      serve until Ctrl-C
python serve.py ctr-ctr/model new.csv   or print the chances of a file's first rows
"""

import csv
import json
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer
from itertools import islice

sys.path.insert(0, sys.argv[1])  # where the export lies, with its preprocessor.py

import torch
from preprocessor import Preprocessor  # type: ignore[import-not-found]  # lies beside the export

PREPROCESSOR = Preprocessor(f"{sys.argv[1]}/preprocessor.json")
PROGRAM = torch.export.load(f"{sys.argv[1]}/model.pt2").module()


def chances(rows: list[dict]) -> list[float]:
    features = {name: torch.from_numpy(array) for name, array in PREPROCESSOR.encode(rows).items()}
    with torch.no_grad():
        return PROGRAM(features)["probability"].tolist()


class Service(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        rows = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        answer = json.dumps(chances(rows)).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        self.wfile.write(answer)


if sys.argv[2].isdigit():
    HTTPServer(("127.0.0.1", int(sys.argv[2])), Service).serve_forever()
else:
    with open(sys.argv[2], encoding="utf-8", newline="") as file:
        rows = list(islice(csv.DictReader(file), 5))
    for row, chance in zip(rows, chances(rows), strict=True):
        print(f"{row['good']:>6} on {row['device']:<8} seen {row['seen'] or 'nothing':<22} {chance:.1%}")
