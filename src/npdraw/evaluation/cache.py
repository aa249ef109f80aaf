"""`keep`: trains a small network for scores once per set of images, and finds it again by a hash of its training data.
One process trains and the others wait. An incomplete file is made again."""

import hashlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from torch import nn

from npdraw.data.locks import alone
from npdraw.errors import InputError
from npdraw.files import read_tensors, write_tensors
from npdraw.progress import Progress

Network = TypeVar("Network", bound=nn.Module)


def weights_digest(network: nn.Module) -> str:
    """A hash of a network's weights: figures of two different networks must not be compared."""
    content = hashlib.sha256()
    for weights in network.state_dict().values():
        content.update(weights.cpu().numpy().tobytes())
    return content.hexdigest()[:16]


def keep(
    folder: Path,
    words: str,
    kind: str,
    title: str,
    make: Callable[[], Network],
    train: Callable[[], Network],
    progress: Progress,
    facts: tuple[str, ...] = (),
) -> Network:
    """The network of this `kind` and these `words` (a hash). Its file in `folder` is loaded into the network that
    `make` returns; without a file, `train` trains it. `title` names it in messages. `facts` are attributes of the
    network that are stored with its weights."""
    path = folder / f"{kind}-{words[:16]}.safetensors"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with alone(path, f"training {title} of these images", progress):
            try:
                return _read(path, kind, make(), facts)
            except (ValueError, KeyError, TypeError, RuntimeError):
                pass  # it is missing or incomplete
            network = train()
            known: Mapping[str, Any] = {name: getattr(network, name) for name in facts}
            write_tensors(path, kind, network.state_dict(), {**known, "digest": weights_digest(network)})
            return network
    except OSError as error:
        raise InputError(
            f"cannot store {title} in {folder} ({error.strerror or error}); check the free space and the permissions, "
            "or choose another folder with --data-dir"
        ) from None


def _read(path: Path, kind: str, network: Network, facts: tuple[str, ...]) -> Network:
    """Load the weights of a file into a network; raises if anything does not fit."""
    tensors, meta = read_tensors(path, kind)
    network.load_state_dict(tensors)
    for name in facts:
        setattr(network, name, float(meta[name]))
    if weights_digest(network) != meta["digest"]:
        raise ValueError(f"{path} is not whole")
    return network.requires_grad_(False).eval()
