"""`VAE`: a plain convolutional variational autoencoder as a baseline for NP-DRAW. Its latent has no places.

- Convolutions of stride 2 until no side is above 4, one linear layer to mean and log-variance of a Gaussian latent, and
  the same back. It has no BatchNorm, so its state is only weights and their average. About 250,000 parameters.
- It is trained like NP-DRAW, by `training.loop.fit`, on the same images with the same likelihood, by the ELBO alone. If
  images are ink, pixels are drawn again in every step. The run writes nothing: it takes only minutes.
- It samples like NP-DRAW: a seed means one picture, in any batch. The picture is `picture` of the likelihood.
- It is stored once it is trained, like the classifiers, and `digest` identifies it.
"""

import math
import os
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor, nn

from npdraw import distributions, noise
from npdraw.canvas import to_unit
from npdraw.config import Config
from npdraw.data.images import Subset
from npdraw.data.prepared import digest
from npdraw.data.splits import shuffled
from npdraw.errors import InputError, TrainingError
from npdraw.evaluation.cache import keep, weights_digest
from npdraw.evaluation.features import Pictures
from npdraw.model import IMAGES_AT_ONCE
from npdraw.noise import Stream, seeds_for
from npdraw.prior import fixed_batch
from npdraw.progress import Progress

VERSION = 1  # of network and training; a VAE of another version is trained again
LATENT, WIDTH, SMALLEST = 32, 64, 4  # numbers of the latent, channels, side of the smallest map
EPOCHS, RATE, AVERAGE = 20, 3e-3, 0.99
BATCH, SMALLEST_BATCH, BATCH_NUMBERS = 64, 8, 50_000  # images per step: most, fewest; most numbers in them
LEAST_STEPS, MOST_STEPS = 300, 2000  # steps: bounded, so that no set takes more than minutes on a CPU


class Loss(NamedTuple):
    """Minus ELBO in nats per image, and its parts, averaged over the batch."""

    total: Tensor
    reconstruction: Tensor
    kl: Tensor


class Elbo(NamedTuple):
    """Evidence lower bound in nats per image, and its parts, each (B,)."""

    elbo: Tensor
    reconstruction: Tensor
    kl: Tensor


class VAE(nn.Module):
    """Images (B,C,H,W) of one shape, a latent (B,LATENT), and back."""

    def __init__(self, shape: torch.Size, likelihood: distributions.Name, mixtures: int = 10):
        super().__init__()
        self.shape, self.name, self.mixtures = shape, likelihood, mixtures  # shape (C,H,W)
        channels, *size = shape
        halvings = max(1, math.ceil(math.log2(max(size) / SMALLEST)))
        widths = [WIDTH // 2, *[WIDTH] * (halvings - 1)]  # from the image inwards
        inner = torch.Size((widths[-1], *(-(-side // 2**halvings) for side in size)))  # the smallest map
        down = (nn.Conv2d(a, b, 3, 2, 1) for a, b in zip([channels, *widths], widths))
        self.encoder = nn.Sequential(
            *(layer for conv in down for layer in (conv, nn.ReLU())), nn.Flatten(), nn.Linear(inner.numel(), 2 * LATENT)
        )
        outputs = [*widths[-2::-1], distributions.outputs(likelihood, channels, mixtures)]
        up = (nn.ConvTranspose2d(a, b, 4, 2, 1) for a, b in zip(widths[::-1], outputs))
        self.decoder = nn.Sequential(
            *(nn.Linear(LATENT, inner.numel()), nn.Unflatten(1, inner)),
            *(layer for conv in up for layer in (nn.ReLU(), conv)),
        )
        for layer in self.modules():  # torch's default is so small that 600 steps did not separate the digits
            if isinstance(layer, nn.Conv2d | nn.ConvTranspose2d | nn.Linear):
                nn.init.kaiming_normal_(layer.weight)
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # faster on the CPU

    @property
    def device(self) -> torch.device:
        return next(self.parameters()).device

    @property
    def digest(self) -> str:
        """A hash that identifies these weights."""
        return weights_digest(self)

    def _posterior(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and log-variance of the latent, each (B,LATENT)."""
        mean, log_variance = self.encoder(images).chunk(2, dim=1)
        return mean, log_variance

    def _likelihood(self, latent: Tensor) -> distributions.Likelihood:
        _, height, width = self.shape
        params = self.decoder(latent)[..., :height, :width]
        return distributions.make(self.name, params, self.shape[0], self.mixtures)

    def _bound(self, images: Tensor, noise: Tensor) -> Elbo:
        """The bound by one draw of the latent, from noise (B,LATENT). The KL of two Gaussians is exact."""
        mean, log_variance = self._posterior(images)
        kl = 0.5 * (mean**2 + log_variance.exp() - 1 - log_variance).sum(1)
        reconstruction = self._likelihood(mean + (0.5 * log_variance).exp() * noise).log_prob(images)
        return Elbo(reconstruction - kl, reconstruction, kl)

    def forward(self, images: Tensor) -> Loss:
        """The training loss of a batch (B,C,H,W) in [0, 1]."""
        bound = self._bound(images, torch.randn(len(images), LATENT, device=images.device))
        return Loss(-bound.elbo.mean(), -bound.reconstruction.mean(), bound.kl.mean())

    @torch.no_grad()
    def encode(self, images: Tensor, seed: int | Sequence[int] | None = None) -> Tensor:
        """The latent of each image (N,C,H,W): the posterior's mean, or with a seed a sample. (N,LATENT)"""
        found = [torch.zeros(2, 0, LATENT, device=self.device)]
        found += [torch.stack(self._posterior(self._images(x))) for x in images.split(IMAGES_AT_ONCE)]
        mean, log_variance = torch.cat(found, dim=1)
        if seed is None:
            return mean
        return mean + (0.5 * log_variance).exp() * latents(seed, len(images), Stream.VAE_POSTERIOR, self.device)

    @torch.no_grad()
    def decode(self, latent: Tensor) -> Tensor:
        """The picture of each latent (N,LATENT): (N,C,H,W). Batches are padded, so a latent always looks the same."""
        pictures, size = [latent.new_zeros(0, *self.shape)], min(IMAGES_AT_ONCE, fixed_batch(self.device))
        for z in latent.split(size) if len(latent) else ():
            padded = torch.cat([z, z[-1:].expand(size - len(z), -1)])
            pictures.append(self._likelihood(padded).picture()[: len(z)])
        return torch.cat(pictures)

    def sample(self, n: int = 1, seed: int | Sequence[int] = 0) -> Tensor:
        """New images (n,C,H,W). Image i belongs to seed + i (or seed[i]), in any batch."""
        return self.decode(latents(seed, n, Stream.VAE_PRIOR, self.device))

    @torch.no_grad()
    def elbo(self, images: Tensor, seed: int = 0) -> Elbo:
        """The bound by one sample per image (N,C,H,W), already binarised if the likelihood is Bernoulli."""
        found = [Elbo(*torch.zeros(3, 0, device=self.device))]
        for i in range(0, len(images), IMAGES_AT_ONCE):
            x = self._images(images[i : i + IMAGES_AT_ONCE])
            found.append(self._bound(x, latents(seed + i, len(x), Stream.VAE_POSTERIOR, self.device)))
        return Elbo(*(torch.cat(xs) for xs in zip(*found, strict=True)))

    def _images(self, images: Tensor) -> Tensor:
        if images.shape[1:] != self.shape:
            raise InputError(f"this VAE takes images of the shape {tuple(self.shape)}, not {tuple(images.shape[1:])}")
        return to_unit(images.to(self.device))


def latents(seed: int | Sequence[int], n: int, stream: int, device: torch.device) -> Tensor:
    """Standard normal numbers by seed: (n,LATENT) float32"""
    return noise.normal(seeds_for(n, seed, "latents"), LATENT, stream).to(device)


def train_vae(
    images: Subset, likelihood: distributions.Name, mixtures: int, ink: bool, device: str | torch.device,
    progress: Progress, seed: int = 0,
) -> VAE:  # fmt: skip
    """A VAE trained on images; with `ink`, every pixel is drawn as 0 or 1."""
    from npdraw.training.fabric import make_fabric
    from npdraw.training.loop import Stage, fit  # Lightning takes seconds to import, and is needed once
    from npdraw.training.run import Run

    device = torch.device(device)
    batch = min(len(images), max(SMALLEST_BATCH, min(BATCH, BATCH_NUMBERS // images.shape[1:].numel())))
    seen = shuffled(len(images), seed)[: MOST_STEPS * batch]  # so that an epoch has no more than MOST_STEPS steps
    per_epoch = len(seen) // batch
    epochs = min(MOST_STEPS, max(LEAST_STEPS, EPOCHS * per_epoch)) // per_epoch
    config = replace(Config(), seed=seed)

    def batch_of(index: Tensor, step: int, epoch: int) -> tuple[Tensor]:
        x = to_unit(images[seen[index.cpu()]].to(device))
        return (x.bernoulli() if ink else x,)

    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        trial, (x,) = VAE(images.shape[1:], likelihood, mixtures).to(device), batch_of(torch.arange(batch), 0, 0)
        seconds = epochs * per_epoch * _seconds_of_a_step(trial, x)
        progress.say(f"training a VAE of these images: {epochs * per_epoch:,} steps, about {seconds:,.0f} s")
        torch.manual_seed(seed)
        model = VAE(images.shape[1:], likelihood, mixtures)
        stage = Stage(
            "vae", model, epochs, batch, RATE, decay=True, warmup=0, ema=AVERAGE, batch_of=batch_of, setting="batch"
        )
        run = Run(Path(os.devnull), config, writes=False)  # no checkpoint to continue from, and none is written
        try:
            fit(make_fabric(config, device.type), run, stage, len(seen), progress)
        except TrainingError:
            raise TrainingError(
                "a VAE of these images cannot be trained: its loss is not finite, or memory is short; leave editing "
                "out of --metrics"
            ) from None
    return model.requires_grad_(False).eval()


def _seconds_of_a_step(model: VAE, x: Tensor) -> float:
    """How long a step takes: the second of two, since the first one takes longer."""
    for _ in range(2):
        began = time.perf_counter()
        model(x).total.backward()
        float(sum(p.grad.sum() for p in model.parameters() if p.grad is not None))  # waits for the device
    return time.perf_counter() - began


def load_vae(
    images: Subset, likelihood: distributions.Name, mixtures: int, ink: bool, folder: Path, device: str | torch.device,
    progress: Progress,
) -> VAE:  # fmt: skip
    """The VAE of these images. It is trained once, stored in `folder` and found by a hash of its training data."""
    words = digest(VERSION, Pictures(images, images.index, ink).digest, likelihood, mixtures)
    make = partial(VAE, images.shape[1:], likelihood, mixtures)
    train = partial(train_vae, images, likelihood, mixtures, ink, device, progress)
    return keep(folder, words, "vae", "a VAE", make, train, progress).to(device)
