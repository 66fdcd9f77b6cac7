"""A GAN that learns a ring of points, elastic: `python train.py`, or `elasticdl run --workers 1:4 train.py`."""

import argparse
import math

import torch
from safetensors.torch import save_file
from torch import nn
from torch.utils.data import TensorDataset

import elasticdl.torch as elastic

parser = argparse.ArgumentParser()
parser.add_argument("--output", default="generator.safetensors")
parser.add_argument("--epochs", type=int, default=6)
parser.add_argument("--logical_ranks", type=int, default=None)
options = parser.parse_args()

torch.manual_seed(0)
angles = torch.rand(2048) * 2 * math.pi
radii = 1 + 0.05 * torch.randn(2048)
points = torch.stack([radii * angles.cos(), radii * angles.sin()], 1)
dataset = TensorDataset(points, torch.zeros(2048))  # items are pairs; there is no label here

NOISE = 8
generator = nn.Sequential(
    nn.Linear(NOISE, 64), nn.LeakyReLU(0.2), nn.Linear(64, 64), nn.LeakyReLU(0.2), nn.Linear(64, 2)
)
discriminator = nn.Sequential(
    nn.Linear(2, 64), nn.LeakyReLU(0.2), nn.Linear(64, 64), nn.LeakyReLU(0.2), nn.Linear(64, 1)
)
generator_optimizer = torch.optim.Adam(generator.parameters(), lr=2e-3, betas=(0.5, 0.9))
discriminator_optimizer = torch.optim.Adam(discriminator.parameters(), lr=2e-3, betas=(0.5, 0.9))
binary_cross_entropy = nn.functional.binary_cross_entropy_with_logits

job = elastic.join(
    {"generator": generator, "discriminator": discriminator},
    [generator_optimizer, discriminator_optimizer],
    dataset,
    global_batch_size=64,
    epochs=options.epochs,
    seed=0,
    logical_ranks=options.logical_ranks,
)
for step in job:
    discriminator.requires_grad_(True)
    for real, _ in step:  # once for each update: the batches are the same each time
        generated = generator(torch.randn(len(real), NOISE)).detach()
        scores = discriminator(torch.cat([real, generated]))
        targets = torch.cat([torch.ones(len(real), 1), torch.zeros(len(real), 1)])
        step.backward(binary_cross_entropy(scores, targets))
    discriminator_optimizer.step()

    discriminator.requires_grad_(False)
    for real, _ in step:
        scores = discriminator(generator(torch.randn(len(real), NOISE)))
        step.backward(binary_cross_entropy(scores, torch.ones(len(real), 1)))
    generator_optimizer.step()

if job.is_first:
    save_file(generator.state_dict(), options.output)
    with torch.no_grad():
        distances = generator(torch.randn(1000, NOISE)).norm(dim=1)
    print(f"generated points lie {distances.mean():.2f} ± {distances.std():.2f} from the centre; real ones 1.00 ± 0.05")
