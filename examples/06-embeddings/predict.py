"""Whom to show what: the exported model, with torch alone."""

import hashlib

import torch


def number(text):
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little", signed=True)


program = torch.export.load("trained/model.pt2").module()
for tag in range(5):
    ids = torch.tensor([[number("user 3"), number("item 7"), number(f"tag {tag}")]] * 2)
    print(f"tag {tag}: {torch.sigmoid(program(ids))[0].item():.0%}")
