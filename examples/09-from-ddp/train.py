"""A small network learns to read digits, in as many processes as there are."""

import sys

import torch
from safetensors.torch import save_file
from sklearn.datasets import load_digits
from torch import nn
from torch.utils import data

import elasticdl.torch as elastic

BATCH, EPOCHS = 64, int(sys.argv[1]) if len(sys.argv) > 1 else 8

images, labels = load_digits(return_X_y=True)
dataset = data.TensorDataset(torch.tensor(images, dtype=torch.float32) / 16, torch.tensor(labels))

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
optimizer = torch.optim.AdamW(model.parameters(), lr=0.003)

job = elastic.join(model, optimizer, dataset, global_batch_size=BATCH, epochs=EPOCHS)
for step in job:
    for features, targets in step:
        loss = nn.functional.cross_entropy(model(features), targets)
        step.backward(loss)

# One process writes the result.
if job.is_first:
    save_file(model.state_dict(), "digits.safetensors")
    with torch.no_grad():
        right = (model(dataset.tensors[0]).argmax(-1) == dataset.tensors[1]).float().mean()
    print(f"{right:.1%} of the digits are read correctly")
