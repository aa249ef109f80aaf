"""`SampleScore`: how far a model's samples are from validation images, small enough to be taken while it trains.

FID in the largest space of the network that as many images fill, else KID: of Inception, the 2048-d features above
2,048 images, the 768-d ones above 768. A covariance of fewer images than dimensions would make a number, but no score.
"""

import torch

from npdraw.config import Config
from npdraw.data import Subset
from npdraw.evaluation.features import Extractor, Pictures, describe
from npdraw.evaluation.frechet import frechet
from npdraw.evaluation.kernel import kernel_distance
from npdraw.evaluation.protocol import draw, sampled
from npdraw.model import NPDraw
from npdraw.progress import Progress

FEWEST = 4  # images that a score can be taken of


class SampleScore:
    """The distance of as many samples as validation images from these; `name` says which distance it is."""

    def __init__(self, network: Extractor, validation: Subset, config: Config, device: torch.device):
        self.network, self.device, self.ink = network, device, config.data.binarise != "none"
        self.count = min(config.model_stage.score_images, len(validation))
        index = torch.arange(self.count) * len(validation) // self.count  # evenly: images may be sorted by class
        chosen = Subset(validation.images, validation.index[index.to(validation.index.device)])
        pictures = Pictures(chosen, chosen.index.cpu(), self.ink)
        self.reference = describe(network, pictures, device, Progress(quiet=True), "")
        filled = [space for space, dims in network.spaces.items() if dims < self.count]
        self.space = filled[0] if filled else None
        largest = next(iter(network.spaces))
        self.name = "kid" if self.space is None else "fid" if self.space == largest else f"fid_{self.space}"

    def __call__(self, model: NPDraw) -> float:
        """Of samples by the seeds from 0 on, so that two models are compared on the same noise."""
        pixels, _ = draw(model, self.count, 0, None, Progress(quiet=True))
        seen = describe(self.network, sampled(pixels, self.ink), self.device, Progress(quiet=True), "")
        if self.space is not None:
            return frechet(seen.moments[self.space], self.reference.moments[self.space])
        largest = next(iter(self.network.spaces))
        return kernel_distance(seen.kept[largest], self.reference.kept[largest]).mean
