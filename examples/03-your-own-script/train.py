"""An ordinary training script, elastic: `python train.py`, or `elasticdl run --workers 1:4 train.py`."""

import torch
from safetensors.torch import save_file
from torch import nn
from torch.utils.data import TensorDataset

import elasticdl.torch as elastic
from elasticdl.zoo.digits.data import draw_digits

images, labels = draw_digits()
dataset = TensorDataset(torch.tensor(images, dtype=torch.float32) / 16, torch.tensor(labels, dtype=torch.int64))

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
optimizer = torch.optim.AdamW(model.parameters(), lr=0.003)

job = elastic.join(model, optimizer, dataset, global_batch_size=64, epochs=4, seed=0)
for step in job:  # each step of the plan, for any number of workers
    for features, targets in step:  # this worker's share, one logical rank at a time
        step.backward(nn.functional.cross_entropy(model(features), targets))

if job.is_first:
    save_file(model.state_dict(), "digits.safetensors")
    with torch.no_grad():
        right = (model(dataset.tensors[0]).argmax(-1) == dataset.tensors[1]).float().mean()
    print(f"{right:.1%} of the digits are read correctly")
