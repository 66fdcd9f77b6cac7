"""Continue a text with the trained program: python write.py "The import statement" """

import sys

import torch

CONTEXT = 64

text = sys.argv[1] if len(sys.argv) > 1 else "The import statement"
# The program was exported for passages of 64 characters; the padding after the text does not change its scores.
program = torch.export.load("trained/model.pt2").module()
torch.manual_seed(0)
for _ in range(200):
    tail = text[-CONTEXT:].encode("ascii")
    padded = torch.tensor(list(tail.ljust(CONTEXT, b" ")), dtype=torch.int64)
    with torch.no_grad():
        scores = program(padded[None])[0, len(tail) - 1]
    text += chr(int(torch.multinomial((scores / 0.7).softmax(-1), 1)))
print(text)
