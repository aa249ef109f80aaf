"""`Inception`: the network of 2015-12-05 whose features FID compares; inference only.

Choices: batch norm is folded into the convolutions, so a layer is one convolution and a ReLU. Tensors have
TensorFlow's scope names with `_` for `/`. The network is built from one table, which also gives the name of each
convolution in the public file. That file is the only pickle that npdraw opens, and only if its hash is the published
one. A file is read completely before it is hashed, so the hashed bytes are the loaded bytes.
"""

import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import ClassVar

import torch
import torch.nn.functional as F
from safetensors import SafetensorError
from safetensors.torch import load
from torch import Tensor, nn

from npdraw.data import data_folder
from npdraw.data.fetch import Remote, fetch
from npdraw.errors import InputError
from npdraw.files import misfit
from npdraw.progress import Progress

SIDE = 299  # pixels per side of the network's input
EPSILON = 0.001  # of its batch norm
PUBLIC = Remote(
    "pt_inception-2015-12-05-6726825d.pth",
    ("https://github.com/mseitzer/pytorch-fid/releases/download/fid_weights/pt_inception-2015-12-05-6726825d.pth",),
    "6726825d0af5f729cebd5821db510b11b1cfad8faad88a03f1befd49fb9129b2",
    95628359,
)
ESTIMATED = "4d00c5585f4ff6e2345023e60410f9209eae34cdfa90180992b542eee1e52106"  # SHA-256 of the file with estimates
ADVICE = (
    f"Get {PUBLIC.urls[0]} by hand and give it with --inception FILE, or omit the scores that need it "
    "(evaluate: choose other --metrics; train: --model-stage.score-every 0)"
)

# A block has a scope, a name in the public file and parallel towers; a tower is "SCOPE PUBLIC STEPS". Steps: 64 is a
# 1 x 1 convolution to 64 channels, 64:1x7 is one of height 1 and width 7, 64:1x3+3x1 is two in parallel; max and avg
# are 3 x 3 pools. All keep the size, except those with /2 or /1, which have that stride and no padding.
_STEM = "_ _ 32:3x3/2 32:3x3/1 64:3x3 max/2 80 192:3x3/1 max/2"
_STEM_PUBLIC = ("Conv2d_1a_3x3", "Conv2d_2a_3x3", "Conv2d_2b_3x3", "Conv2d_3b_1x1", "Conv2d_4a_3x3")
_35 = "_ branch1x1 64 | tower branch5x5 48 64:5x5 | tower_1 branch3x3dbl 64 96:3x3 96:3x3 | tower_2 branch_pool avg {}"
_TO_17 = "_ branch3x3 384:3x3/2 | tower branch3x3dbl 64 96:3x3 96:3x3/2 | _ _ max/2"
_17 = (
    "_ branch1x1 192 | tower branch7x7 {0} {0}:1x7 192:7x1 | "
    "tower_1 branch7x7dbl {0} {0}:7x1 {0}:1x7 {0}:7x1 192:1x7 | tower_2 branch_pool avg 192"
)
_TO_8 = "tower branch3x3 192 320:3x3/2 | tower_1 branch7x7x3 192 192:1x7 192:7x1 192:3x3/2 | _ _ max/2"
_8 = (
    "_ branch1x1 320 | tower branch3x3 384 384:1x3+3x1 | "
    "tower_1 branch3x3dbl 448 384:3x3 384:1x3+3x1 | tower_2 branch_pool {} 192"
)
_BLOCKS = (
    ("", "", _STEM),
    ("mixed", "Mixed_5b", _35.format(32)),
    ("mixed_1", "Mixed_5c", _35.format(64)),
    ("mixed_2", "Mixed_5d", _35.format(64)),
    ("mixed_3", "Mixed_6a", _TO_17),
    ("mixed_4", "Mixed_6b", _17.format(128)),
    ("mixed_5", "Mixed_6c", _17.format(160)),
    ("mixed_6", "Mixed_6d", _17.format(160)),
    ("mixed_7", "Mixed_6e", _17.format(192)),
    ("mixed_8", "Mixed_7a", _TO_8),
    ("mixed_9", "Mixed_7b", _8.format("avg")),
    ("mixed_10", "Mixed_7c", _8.format("max")),
)
_POOLS = {
    "max/2": partial(F.max_pool2d, kernel_size=3, stride=2),
    "max": partial(F.max_pool2d, kernel_size=3, stride=1, padding=1),
    "avg": partial(F.avg_pool2d, kernel_size=3, stride=1, padding=1, count_include_pad=False),
}

Tower = list[str | list[str]]  # its steps in order, each the name of a pool, or names of parallel convolutions


class Inception(nn.Module):
    """The 94 convolutions, without weights until `load_inception` gives it some."""

    spaces: ClassVar = {"2048": 2048, "768": 768}  # name of a feature space -> its dimension

    def __init__(self, digest: str, estimated: bool):
        super().__init__()
        self.digest = digest  # of the weights file: the first 16 digits of its SHA-256
        self.estimated = estimated  # whether two tensors are estimates; figures must then say so
        self.name = "Inception 2015-12-05" + (", estimated" if estimated else "")
        self.public: dict[str, str] = {}  # name of a convolution -> its name in the public file
        self.blocks: dict[str, list[Tower]] = {}
        width = 3
        for block, public, towers in _BLOCKS:
            built = [self._build(block, public, tower, width) for tower in towers.split("|")]
            self.blocks[block] = [tower for tower, _ in built]
            width = sum(out for _, out in built)

    def _build(self, block: str, public: str, text: str, width: int) -> tuple[Tower, int]:
        """Make a tower's convolutions. Returns its steps and its number of output channels."""
        place, branch, *words = text.split()
        scope = "".join(f"{part}_" for part in (block, place) if part.strip("_"))
        several = sum(word not in _POOLS for word in words) > 1
        tower: Tower = []
        number = 0  # of convolution steps so far
        for word in words:
            if word in _POOLS:
                tower.append(word)
                continue
            channels, _, form = word.partition(":")
            kernels, _, stride = form.partition("/")
            fork = (kernels or "1x1").split("+")
            forked = len(fork) > 1
            step = []
            for i, kernel in enumerate(fork):
                name = (f"{scope}mixed_conv_{i}" if forked else f"{scope}conv_{number}").removesuffix("_0")
                suffix = (f"_{number + 1}" if several else "") + ("ab"[i] if forked else "")
                self.public[name] = f"{public}.{branch}{suffix}" if public else _STEM_PUBLIC[number]
                size, pad = (int(kernel[0]), int(kernel[2])), "valid" if stride else "same"
                self.add_module(name, nn.Conv2d(width, int(channels), size, int(stride or 1), pad, device="meta"))
                step.append(name)
            tower.append(step)
            width = int(channels) * len(fork)
            number += 1
        return tower, width

    @torch.no_grad()
    def forward(self, images: Tensor) -> dict[str, Tensor]:
        """Features: spatial means of the last layer, and of the last layer with 768 channels.

        images (B, 1 or 3, H, W) float in [0,1] -> {"2048": (B,2048), "768": (B,768)} float32
        """
        if images.dim() != 4 or images.shape[1] not in (1, 3) or not images.is_floating_point():
            found = f"{tuple(images.shape)} of {images.dtype}"
            raise InputError(f"Inception needs float images (B, 1 or 3, H, W) in [0, 1], not {found}")
        features = {}
        with _exact(images.device.type):
            x = F.interpolate(images.float(), (SIDE, SIDE), mode="bilinear", align_corners=False)
            x = (2 * x - 1).expand(-1, 3, -1, -1)  # (B,3,299,299)
            if x.device.type == "cpu":
                x = x.contiguous(memory_format=torch.channels_last)  # 1.5 times as fast here, slower on CUDA
            for block, towers in self.blocks.items():
                x = _joined([self._climb(tower, x) for tower in towers])
                if block in ("mixed_7", "mixed_10"):
                    features[str(x.shape[1])] = x.mean((2, 3))
        return features

    def _climb(self, tower: Tower, x: Tensor) -> Tensor:
        for step in tower:
            if isinstance(step, str):
                x = _POOLS[step](x)
            else:
                x = _joined([F.relu(self.get_submodule(name)(x), inplace=True) for name in step])
        return x


def _joined(maps: list[Tensor]) -> Tensor:
    """Feature maps, concatenated; a single map is not copied."""
    return maps[0] if len(maps) == 1 else torch.cat(maps, 1)


@contextmanager
def _exact(device: str) -> Iterator[None]:
    """Convolutions in full float32. TF32, torch's default for them on CUDA, keeps 10 bits of a number, and autocast not
    more. A distance that depends on the rounding of a device could not be compared.
    """
    conv = torch.backends.cudnn.conv  # type: ignore[attr-defined]
    before = conv.fp32_precision
    conv.fp32_precision = "ieee"
    try:
        with torch.autocast(device, enabled=False):
            yield
    finally:
        conv.fp32_precision = before


def load_inception(
    path: str | Path | None = None,
    data_dir: Path | None = None,
    device: str | torch.device = "cpu",
    progress: Progress | None = None,
) -> Inception:
    """The network with the weights of a file: the given one, $NPDRAW_INCEPTION, or the public one, downloaded once.

    A .safetensors file holds folded tensors, and any such file is accepted. A .pth or .pt file must be the public one.
    """
    path = path or os.environ.get("NPDRAW_INCEPTION")
    if not path:
        path = fetch(PUBLIC, data_folder(data_dir) / "inception", progress or Progress(quiet=True), ADVICE)
    file = Path(path).expanduser()
    try:
        content = file.read_bytes()
    except OSError as error:
        raise InputError(f"cannot read the Inception weights {file}: {error.strerror or error}. {ADVICE}") from None
    digest = hashlib.sha256(content).hexdigest()
    net = Inception(digest[:16], digest == ESTIMATED)
    match file.suffix.lower():
        case ".safetensors":
            tensors = _plain(file, content)
        case ".pth" | ".pt":
            if digest != PUBLIC.sha256:
                raise InputError(f"{file} is not {PUBLIC.path} as published: npdraw opens no other pickle. {ADVICE}")
            tensors = _folded(torch.load(BytesIO(content), map_location="cpu", weights_only=True), net.public)
        case _:
            raise InputError(f"{file} must be a .safetensors file of folded weights, or {PUBLIC.path}")
    if reason := misfit(tensors, net.state_dict(), exact=False):
        raise InputError(f"{file} is not a folded Inception: {reason}")
    net.load_state_dict({name: tensors.pop(name).float().to(device) for name in list(tensors)}, assign=True)
    net = net.requires_grad_(False).eval()
    for kernel in (p for p in net.parameters() if p.ndim == 4 and p.device.type == "cpu"):
        kernel.data = kernel.contiguous(memory_format=torch.channels_last)  # as `forward` has the images there
    return net


def _plain(file: Path, content: bytes) -> dict[str, Tensor]:
    try:
        return load(content)
    except (SafetensorError, ValueError, KeyError) as error:
        raise InputError(f"{file} is damaged or not a safetensors file: {error}; get it again") from None


def _folded(public: dict[str, Tensor], names: dict[str, str]) -> dict[str, Tensor]:
    """Each convolution of the public file and its batch norm as one convolution, without the classifier."""
    tensors = {}
    for name, foreign in names.items():
        parts = ("conv.weight", "bn.weight", "bn.bias", "bn.running_mean", "bn.running_var")
        kernel, scale, shift, mean, variance = (public[f"{foreign}.{part}"].double() for part in parts)
        scale = scale / (variance + EPSILON).sqrt()  # (out,)
        tensors[f"{name}.weight"] = kernel * scale[:, None, None, None]
        tensors[f"{name}.bias"] = shift - mean * scale
    return tensors
