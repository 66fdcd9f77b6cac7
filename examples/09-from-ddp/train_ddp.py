"""A small network learns to read digits, in as many processes as there are."""

import os
import sys

import torch
import torch.distributed as dist
from safetensors.torch import save_file
from sklearn.datasets import load_digits
from torch import nn
from torch.utils import data

BATCH, EPOCHS = 64, int(sys.argv[1]) if len(sys.argv) > 1 else 8

dist.init_process_group("gloo")
images, labels = load_digits(return_X_y=True)
dataset = data.TensorDataset(torch.tensor(images, dtype=torch.float32) / 16, torch.tensor(labels))

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
optimizer = torch.optim.AdamW(model.parameters(), lr=0.003)

first_epoch = 0
if os.path.exists("snapshot.pt"):
    snapshot = torch.load("snapshot.pt", weights_only=True)
    model.load_state_dict(snapshot["model"])
    optimizer.load_state_dict(snapshot["optimizer"])
    first_epoch = snapshot["epoch"]
model = nn.parallel.DistributedDataParallel(model)
sampler = data.DistributedSampler(dataset)
loader = data.DataLoader(dataset, batch_size=BATCH // dist.get_world_size(), sampler=sampler)

for epoch in range(first_epoch, EPOCHS):
    sampler.set_epoch(epoch)
    for features, targets in loader:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(features), targets)
        loss.backward()
        optimizer.step()
    if dist.get_rank() == 0:
        state = {"model": model.module.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch + 1}
        torch.save(state, "snapshot.new")
        os.replace("snapshot.new", "snapshot.pt")
        print(f"epoch {epoch + 1} of {EPOCHS}: loss {loss:.4f}, {dist.get_world_size()} processes")

# One process writes the result.
if dist.get_rank() == 0:
    save_file(model.module.state_dict(), "digits.safetensors")
    with torch.no_grad():
        right = (model(dataset.tensors[0]).argmax(-1) == dataset.tensors[1]).float().mean()
    print(f"{right:.1%} of the digits are read correctly")
dist.destroy_process_group()
