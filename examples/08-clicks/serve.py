"""Serves the exported model: rows as JSON in, probabilities out. Needs torch and NumPy, but not ElasticDL.

python serve.py ctr-ctr/model 8000      serve until Ctrl-C
python serve.py ctr-ctr/model new.csv   or print the probabilities of a file's first rows
"""

import csv
import json
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer
from itertools import islice

sys.path.insert(0, sys.argv[1])  # the directory of the export, with its preprocessor.py

import torch
from preprocessor import Preprocessor  # type: ignore[import-not-found]  # it is in the export

PREPROCESSOR = Preprocessor(f"{sys.argv[1]}/preprocessor.json")
PROGRAM = torch.export.load(f"{sys.argv[1]}/model.pt2").module()


def predict(rows: list[dict]) -> list[float]:
    features = {name: torch.from_numpy(array) for name, array in PREPROCESSOR.encode(rows).items()}
    with torch.no_grad():
        return PROGRAM(features)["probability"].tolist()


class Service(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        rows = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        answer = json.dumps(predict(rows)).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        self.wfile.write(answer)


if sys.argv[2].isdigit():
    HTTPServer(("127.0.0.1", int(sys.argv[2])), Service).serve_forever()
else:
    with open(sys.argv[2], encoding="utf-8", newline="") as file:
        rows = list(islice(csv.DictReader(file), 5))
    for row, probability in zip(rows, predict(rows), strict=True):
        print(f"{row['good']:>6} on {row['device']:<8} seen {row['seen'] or 'nothing':<22} {probability:.1%}")
