"""What is estimated after training. `calibrate`: BatchNorm's statistics. `widen`: how sure a mixture is.

The running statistics of training do not fit: training normalises by each batch, sees relaxed canvases, and has other
weights than the averaged ones. And a decoder is too sure of images that it did not learn from.
"""

import contextlib
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from npdraw import distributions
from npdraw.data.images import evenly
from npdraw.decoder import Decoder
from npdraw.model import IMAGES_AT_ONCE, NPDraw
from npdraw.noise import to_float64
from npdraw.training.augment import Images
from npdraw.training.loop import order

CALIBRATION = 4_000  # images that BatchNorm's statistics are estimated on
PIXELS = 2**16  # of validation images that `widen` looks at: 64 images of 32 x 32


@torch.no_grad()
def calibrate(model: NPDraw, training: Images) -> None:
    """Estimate BatchNorm's statistics again: the posterior's on images, then the decoder's on hard canvases. These are
    the canvases of parses if the decoder learns only from parses, otherwise those of the posterior.

    This goes layer by layer: when a layer is estimated, all layers before it already normalise as they will in use. In
    one pass the earlier layers would normalise by each batch. The statistics can then be far off if a canvas is mostly
    empty (on MNIST a grey haze, and 19 nats per image).
    """
    count = min(CALIBRATION, len(training.pixels))
    chosen = order(len(training.pixels), model.config.seed, "calibration", 0)[:count]  # images may be sorted by class
    index, mode = chosen.split(IMAGES_AT_ONCE), model.config.data.binarise
    model.eval()
    batches = [training.take_ink(i, model.device, mode) for i in index]
    _calibrate(model.posterior, [images for images, _ in batches])
    parsed, firsts = model.config.model_stage.always_parsed, range(0, count, IMAGES_AT_ONCE)
    drawings = (p if parsed else model.encode(x, seed=i) for i, (x, p) in zip(firsts, batches, strict=True))
    _calibrate(model.decoder, [model.render(d) for d in drawings])


class _Enough(Exception):
    """Stops a forward pass once the layer's input has been seen."""


def _calibrate(net: nn.Module, inputs: Sequence[Tensor]) -> None:
    """Give each BatchNorm of a net the mean and variance of its inputs, from the first layer to the last."""
    for layer in [m for m in net.modules() if isinstance(m, nn.BatchNorm2d)]:
        n, total, squares = _sums(net, layer, inputs)
        mean = total / n
        assert layer.running_mean is not None and layer.running_var is not None
        layer.running_mean.copy_(mean)
        layer.running_var.copy_((squares / n - mean**2).clamp_min(0) * n / (n - 1).clamp_min(1))


def _sums(net: nn.Module, layer: nn.Module, inputs: Sequence[Tensor]) -> Tensor:
    """Number, sum and sum of squares of a layer's inputs when the net is given all `inputs`: (3,width) float64"""
    sums: list[Tensor] = []

    def see(_: nn.Module, args: tuple[Tensor]) -> None:
        x = to_float64(args[0])  # (B,width,H,W)
        total = x.sum((0, 2, 3))
        sums.append(torch.stack([torch.full_like(total, x[:, 0].numel()), total, (x**2).sum((0, 2, 3))]))
        raise _Enough

    with layer.register_forward_pre_hook(see):
        for x in inputs:
            with contextlib.suppress(_Enough):
                net(x)
    return torch.stack(sums).sum(0)


def widen(model: NPDraw, validation: Images) -> None:
    """Lower the likelihood's error on images that a mixture did not learn from, by two numbers: what is added to all
    log-scales, and a factor of the logits of all weights. They are fitted on validation images and become part of the
    last layer's weights. The picture is the mean of the likeliest component, so it stays the same."""
    c, net = model.config, model.decoder
    if c.decoder.likelihood != "mixture" or not len(validation.pixels):
        return
    assert isinstance(net, Decoder)
    channels, mixtures = c.data.channels, c.decoder.mixtures
    index = evenly(max(1, PIXELS // (c.data.height * c.data.width)), len(validation.pixels))
    images, parses = validation.take_ink(index, model.device, c.data.binarise)
    model.eval()
    with torch.no_grad():
        drawn = parses if c.model_stage.always_parsed else model.encode(images, seed=0)
        given = [(net(model.render(drawn[i])), images[i]) for i in torch.arange(len(index)).split(IMAGES_AT_ONCE)]
    scales = slice(mixtures * (1 + channels), mixtures * (1 + 2 * channels))

    def changed(params: Tensor, factor: Tensor, added: Tensor) -> Tensor:
        """Numbers of the mixture (outputs,...) along the first dimension, with both changes."""
        weights, before, after = params[:mixtures], params[mixtures : scales.start], params[scales.stop :]
        return torch.cat([weights * factor, before, params[scales] + added, after])

    chosen = torch.zeros(2, device=model.device, requires_grad=True)  # log of the factor, and what is added
    optimizer = torch.optim.LBFGS([chosen], max_iter=12, line_search_fn="strong_wolfe")

    def loss() -> Tensor:
        optimizer.zero_grad()
        total = torch.zeros((), device=model.device)
        for params, x in given:
            own = changed(params.movedim(1, 0), chosen[0].exp(), chosen[1]).movedim(0, 1)
            missed = -distributions.make("mixture", own, channels, mixtures).log_prob(x).sum() / images.numel()
            torch.autograd.backward(missed)
            total += missed.detach()
        return total

    with torch.enable_grad():
        optimizer.step(loss)
    factor, added = chosen.detach()[0].exp(), chosen.detach()[1]
    if chosen.isfinite().all():
        with torch.no_grad():
            net.out.weight.copy_(changed(net.out.weight, factor, torch.zeros_like(added)))
            assert net.out.bias is not None
            net.out.bias.copy_(changed(net.out.bias, factor, added))
