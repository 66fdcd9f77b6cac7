"""Predicts clicks with the exported model, with torch alone."""

import hashlib

import torch


def hash_name(text):
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little", signed=True)


program = torch.export.load("trained/model.pt2").module()
for tag in range(5):
    ids = torch.tensor([[hash_name("user 3"), hash_name("item 7"), hash_name(f"tag {tag}")]] * 2)
    print(f"tag {tag}: {torch.sigmoid(program(ids))[0].item():.0%}")
