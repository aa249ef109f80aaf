"""A tiny network for tests of the code around networks: fixed random projections of the pixels."""

import torch
from torch import Tensor


class Projection:
    """Maps images of any size to 8 and to 3 numbers, and counts the images that it has seen."""

    name, estimated = "projection", False

    def __init__(self, seed: int = 0):
        self.seed, self.digest, self.seen = seed, f"projection-{seed}", 0
        self.spaces = {"8": 8, "3": 3}

    def __call__(self, images: Tensor) -> dict[str, Tensor]:
        self.seen += len(images)
        x = images.flatten(1).double()
        g = torch.Generator().manual_seed(self.seed)
        weights = torch.randn(x.shape[1], 8, generator=g, dtype=torch.float64)
        found = (x @ weights).float()
        return {"8": found, "3": found[:, :3]}
