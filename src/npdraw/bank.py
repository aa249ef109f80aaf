"""`PartBank`: M exemplar parts, real K x K patches of training images, found by k-medoids.

Choices that the paper leaves open:
- Patches come from random places of random images, always fully inside the image.
- A patch is blank if no pixel reaches `BLANK`. Blank patches are never candidates, on any data: Alg. 1 would draw a
  blank part in every empty cell. A blank part and a skipped step give the same canvas, so nothing is lost.
- Dissimilarity is the squared Euclidean distance: its sum over patches is the squared error that the PSNR of parses
  measures. Up to `EXACT` patches are clustered at once (FasterPAM, whose matrix is EXACT x EXACT). More patches are
  clustered with CLARA in bounded memory: cluster several samples, keep the medoids with the lowest cost on all patches.
- Medoids are sorted by brightness, so that the bank looks like a palette and parts with near indices look alike.
"""

import hashlib
from typing import Any, Self

import torch
from torch import Tensor, nn

from npdraw.canvas import Grid, Shrunk, Stack, to_unit
from npdraw.config import Config
from npdraw.errors import InputError
from npdraw.extras import need

BLANK = 0.1  # a patch whose brightest pixel is below this is blank
PATCHES_AT_ONCE = 256  # patches that are cut at a time
EXACT = 10_000  # most patches to cluster at once; CLARA clusters more
SAMPLES, SAMPLE_SIZE = 5, 5_000  # number and size of CLARA's samples (at least two patches per part)


class PartBank(nn.Module):
    """M parts as a buffer `parts` (M,C,K,K), float32 in [0, 1]. It has no weights, and moves and saves with a model."""

    parts: Tensor

    def __init__(self, parts: Tensor):
        super().__init__()
        if parts.ndim != 4 or parts.shape[2] != parts.shape[3] or 0 in parts.shape:
            raise InputError(f"parts must have the shape (M, C, K, K), got {tuple(parts.shape)}")
        self.register_buffer("parts", parts.detach().float().clone())

    def __len__(self) -> int:
        return len(self.parts)

    @property
    def part_size(self) -> int:
        return self.parts.shape[-1]

    @property
    def channels(self) -> int:
        return self.parts.shape[1]

    @property
    def digest(self) -> str:
        """16 hex digits that identify these parts. Half precision does not change them."""
        return hashlib.sha256(self.parts.cpu().half().numpy().tobytes()).hexdigest()[:16]

    def extra_repr(self) -> str:
        return f"{len(self)} parts of {self.part_size} x {self.part_size}, {'grey' if self.channels == 1 else 'colour'}"

    def _repr_html_(self) -> str:
        from npdraw import show

        return f'<div><code>{self!r}</code><br><img src="{show.png_data_uri(show.bank_picture(self.parts))}"></div>'

    @classmethod
    def build(cls, images: Stack, part_size: int, parts: int, patches: int = 5000, seed: int = 0) -> Self:
        """Learn a bank from images (N,C,H,W), uint8 or float in [0, 1]. The same seed gives the same bank."""
        need("a bank of parts", "train", "kmedoids")
        candidates = sample_patches(images, part_size, patches, seed)  # (P,D)
        medoids = k_medoids(candidates, parts, seed)
        chosen = candidates[medoids]
        order = torch.sort(chosen.sum(1), stable=True).indices
        return cls(chosen[order].reshape(parts, images.shape[1], part_size, part_size))


def build_bank(config: Config, images: Stack) -> PartBank:
    """Build the bank that a config asks for, from images shrunk to the canvas."""
    b, size = config.bank, config.canvas_size
    seen: Stack = images if images.shape[-2:] == size else Shrunk(images, Grid(*size, b.part_size))
    return PartBank.build(seen, b.part_size, b.parts, b.patches, config.seed)


def check_range(pixels: Tensor) -> None:
    """Refuse floats outside [0, 1]. 0 means empty: in [-1, 1] the maximum of Eq. 3 would erase the dark half."""
    if pixels.is_floating_point() and not (bool((pixels >= 0).all()) and bool((pixels <= 1).all())):
        raise InputError("pixels must lie in [0, 1], or be bytes from 0 to 255")


def sample_patches(images: Stack, part_size: int, count: int, seed: int) -> Tensor:
    """Up to `count` random patches that are not blank: (P,D) float32, on the CPU. Fewer if not enough are found."""
    if images.ndim != 4 or not len(images):
        raise InputError(f"a bank needs images of the shape (N, C, H, W), not {tuple(images.shape)}")
    if count < 1:
        raise InputError(f"a bank needs at least one patch, not {count}")
    n, c, height, width = images.shape
    if not 1 <= part_size <= min(height, width):
        raise InputError(
            f"a part of {part_size} x {part_size} does not fit images of {height} x {width}; choose a smaller part size"
        )
    generator = torch.Generator().manual_seed(seed)
    offset = torch.arange(part_size)
    inside = (offset[:, None] * width + offset).flatten()  # (K*K,)
    inside = (torch.arange(c)[:, None] * (height * width) + inside).flatten()  # (D,)
    found, have = [], 0
    for _ in range(20):  # each round draws `count` patches; nearly blank sets need several rounds
        i = torch.randint(n, (count,), generator=generator)
        y = torch.randint(height - part_size + 1, (count,), generator=generator)
        x = torch.randint(width - part_size + 1, (count,), generator=generator)
        drawn = torch.empty(count, len(inside))
        for first in range(0, count, PATCHES_AT_ONCE):
            chunk = slice(first, first + PATCHES_AT_ONCE)
            which, of = i[chunk].unique(return_inverse=True)  # read each image once, even if it gives many patches
            seen = images[which]  # (b,C,H,W)
            check_range(seen)
            at = ((y * width + x)[chunk, None] + inside).to(seen.device)  # (B,D)
            drawn[chunk] = to_unit(seen.flatten(1)[of.to(seen.device)[:, None], at]).cpu()
        found.append(drawn[drawn.amax(1) >= BLANK])
        have += len(found[-1])
        if have >= count:
            break
    if not have:
        raise InputError(
            "no part can be learned: every patch of these images is blank (is ink dark on white? invert it)"
        )
    return torch.cat(found)[:count]


def k_medoids(points: Tensor, k: int, seed: int) -> Tensor:
    """Indices (k,) of k different medoids of points (P,D): by FasterPAM, or by CLARA for more than EXACT points."""
    if k < 1:
        raise InputError(f"a bank needs at least one part, not {k}")
    generator = torch.Generator().manual_seed(seed)
    samples, size = (1, EXACT) if len(points) <= EXACT else (SAMPLES, max(SAMPLE_SIZE, 2 * k))
    best, best_cost = None, float("inf")
    for _ in range(samples):
        index = _sample(points, size, k, generator)
        medoids = index[_faster_pam(points[index], k, seed)]
        cost = float(nearest(points, points[medoids])[1].double().sum()) if samples > 1 else 0.0
        if cost < best_cost:
            best, best_cost = medoids, cost
    assert best is not None
    return best


def _sample(points: Tensor, size: int, k: int, generator: torch.Generator) -> Tensor:
    """Indices of a random sample with at least k different points. An error if all points together have fewer."""
    index = torch.randperm(len(points), generator=generator)[:size]
    if len(torch.unique(points[index], dim=0)) >= k:
        return index
    unique, inverse = torch.unique(points, dim=0, return_inverse=True)
    if len(unique) < k:
        raise InputError(
            f"{k} parts are too many: the images have only {len(unique)} different patches; ask for fewer parts"
        )
    first = torch.full((len(unique),), len(points)).scatter_reduce(0, inverse, torch.arange(len(points)), "amin")
    return torch.cat([index, first[torch.randperm(len(first), generator=generator)[: 2 * k]]]).unique()


def _faster_pam(points: Tensor, k: int, seed: int) -> Tensor:
    import kmedoids

    _, inverse = torch.unique(points, dim=0, return_inverse=True)
    distances = (torch.cdist(points, points) ** 2).numpy()
    result: Any = kmedoids.fasterpam(distances, k, init="random", random_state=seed % 2**32, n_cpu=1)
    medoids = torch.from_numpy(result.medoids.astype("int64"))
    # If patches repeat, two medoids may be equal: replace the second by the patch furthest from all medoids.
    kept = {int(inverse[m]): int(m) for m in medoids.flip(0)}
    while len(kept) < k:
        chosen = torch.tensor(list(kept.values()))
        served = torch.from_numpy(distances[:, chosen]).amin(1)
        served[torch.isin(inverse, torch.tensor(list(kept)))] = -1  # rounding can give different patches distance 0
        worst = int(served.argmax())
        kept[int(inverse[worst])] = worst
    return torch.tensor(list(kept.values()))


def nearest(points: Tensor, parts: Tensor, chunk: int = 65_536) -> tuple[Tensor, Tensor]:
    """For each point (P,D), the index of the nearest part (M,D), the lowest on ties, and its squared distance.

    One matrix product per chunk finds the part. The distance is computed from the difference, so it is exact.
    """
    norms = squares(parts) / 2
    found = [(norms - x @ parts.T).argmin(1) for x in points.split(chunk)]
    index = torch.cat(found) if found else torch.zeros(0, dtype=torch.int64)
    exact = [squares(x - parts[i]) for x, i in zip(points.split(chunk), index.split(chunk), strict=True)]
    return index, torch.cat(exact) if exact else points.new_zeros(0)


def squares(points: Tensor) -> Tensor:
    """Squared lengths of points (P,D): (P,). Uses products: on a GPU the kernels of powers and norms take 90 MB of host
    memory, but those of products are loaded already."""
    return (points * points).sum(1)
