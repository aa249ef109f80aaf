"""`keep`: a small network that figures stand on is trained once for a set of images, and found again by what it was
trained on. One process trains, the others wait; a file that is not whole is made again."""

import hashlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from torch import nn

from npdraw.data.alone import alone
from npdraw.errors import InputError
from npdraw.progress import Progress
from npdraw.store import read_tensors, write_tensors

Network = TypeVar("Network", bound=nn.Module)


def weights_digest(network: nn.Module) -> str:
    """A name for a network's weights: figures of two must not be compared."""
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
    """The network of this `kind` and these `words` (a hash), `title` in a sentence: from its file in `folder` into what
    `make` gives, else from `train`. `facts` are numbers that belong to it beside its weights, by attribute."""
    path = folder / f"{kind}-{words[:16]}.safetensors"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with alone(path.with_name(f".{path.name}.lock"), f"training {title} of these images", progress):
            try:
                return _read(path, kind, make(), facts)
            except (ValueError, KeyError, TypeError, RuntimeError):
                pass  # it is not there, or not whole
            network = train()
            known: Mapping[str, Any] = {name: getattr(network, name) for name in facts}
            write_tensors(path, kind, network.state_dict(), {**known, "digest": weights_digest(network)})
            return network
    except OSError as error:
        raise InputError(
            f"cannot keep {title} in {folder} ({error.strerror or error}); make room there, or choose another folder "
            "with --data-dir"
        ) from None


def _read(path: Path, kind: str, network: Network, facts: tuple[str, ...]) -> Network:
    """The weights of a file put into a network; whatever does not fit raises."""
    tensors, meta = read_tensors(path, kind)
    network.load_state_dict(tensors)
    for name in facts:
        setattr(network, name, float(meta[name]))
    if weights_digest(network) != meta["digest"]:
        raise ValueError(f"{path} is not whole")
    return network.requires_grad_(False).eval()
