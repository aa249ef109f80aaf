"""`SampleScore`: the distance of a model's samples from validation images, fast enough to compute during training.

It is the FID in the largest feature space that has fewer dimensions than there are images. With Inception these are
the 2048-d features above 2,048 images, and the 768-d ones above 768. With fewer images it is the KID, because a
covariance of fewer images than dimensions gives no meaningful FID.
"""

from functools import cached_property

import torch
from torch import Tensor

from npdraw.config import Config
from npdraw.data import Subset
from npdraw.data.images import evenly
from npdraw.evaluation.features import Extractor, Features, Pictures, extract, filled
from npdraw.evaluation.frechet import frechet
from npdraw.evaluation.kernel import kernel_distance
from npdraw.evaluation.protocol import draw, sampled
from npdraw.model import NPDraw
from npdraw.progress import Progress

QUIET = Progress(quiet=True)


class SampleScore:
    """The distance between validation images and as many samples; `name` says which distance it is.

    `validation` holds the images, and `seeds` (N,) the seeds of their ink.
    """

    def __init__(self, network: Extractor, validation: Subset, seeds: Tensor, config: Config, device: torch.device):
        self.network, self.device = network, device
        which = evenly(config.model_stage.score_images, len(validation))
        self.count = len(which)
        chosen = Subset(validation.images, validation.index[which.to(validation.index.device)])
        self.pictures = Pictures(chosen, seeds.cpu()[which], config.data.ink)
        spaces = filled(network, self.count)
        largest = next(iter(network.spaces))
        self.space = spaces[0] if spaces else largest
        self.name = "kid" if not spaces else "fid" if self.space == largest else f"fid_{self.space}"

    def _extract(self, pictures: Pictures) -> Features:
        keep = len(pictures) if self.name == "kid" else 0
        return extract(self.network, pictures, self.device, QUIET, "", keep)

    @cached_property
    def _reference(self) -> Features:
        return self._extract(self.pictures)

    def __call__(self, model: NPDraw) -> float:
        """The score of samples with seeds 0, 1, ..., so that two models are compared on the same noise."""
        pixels = draw(model, self.count, 0, None, QUIET).pixels
        seen = self._extract(sampled(pixels, self.pictures.ink))
        if self.name == "kid":
            return kernel_distance(seen.kept[self.space], self._reference.kept[self.space]).mean
        return frechet(seen.moments[self.space], self._reference.moments[self.space])
