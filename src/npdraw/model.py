"""`NPDraw`: the model that owns bank, prior, posterior, decoder and likelihood.

All reported scores use hard drawings: `elbo` and `log_likelihood` never see a relaxed sample. Only `training_loss` uses
relaxations. Everything here works on tensors; store.py handles files.
"""

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import torch
from torch import Tensor, nn

from npdraw import completing, distributions, editing
from npdraw.bank import PartBank, check_range
from npdraw.canvas import Grid, drawn_before, last_cells, render, seam, soft_cell_canvases, to_bytes, to_unit
from npdraw.choices import Choices, relax
from npdraw.config import Config
from npdraw.decoder import Decoder
from npdraw.density import log_density
from npdraw.drawing import Drawing, expect
from npdraw.errors import InputError
from npdraw.flow import Flow
from npdraw.flow_pictures import flow_pictures, lesson
from npdraw.noise import Stream, seeds_for, to_float64, uniform
from npdraw.parsing import parse
from npdraw.posterior import Posterior
from npdraw.prior import Prior, fixed_batch
from npdraw.sample import Sample

if TYPE_CHECKING:
    from npdraw.reading import Images

IMAGES_AT_ONCE = 256  # images at a time in functions that take a whole set


class Elbo(NamedTuple):
    """Evidence lower bound in nats per image, and its parts, each (B,)."""

    elbo: Tensor
    reconstruction: Tensor
    what: Tensor
    where: Tensor
    whether: Tensor


class Loss(NamedTuple):
    """Parts of the training loss, as means over the batch. The KL includes its weight, so that its mean over steps is
    right even if it is computed only at some steps. `total` is minimised; it is not a bound on anything."""

    total: Tensor
    reconstruction: Tensor
    kl: Tensor
    regulariser: Tensor


class NPDraw(nn.Module):
    """NP-DRAW (Zeng et al., UAI 2021) for one config and one bank."""

    def __init__(self, config: Config, bank: PartBank):
        super().__init__()
        c, d = config, config.data
        if (bank.channels, bank.part_size, len(bank)) != (d.channels, c.bank.part_size, c.bank.parts):
            raise InputError(
                f"the config asks for {c.bank.parts} parts of {c.bank.part_size} pixels and {d.channels} channel(s), "
                f"but the bank has {len(bank)} parts of {bank.part_size} pixels and {bank.channels} channel(s)"
            )
        self.config, size = config, (d.height, d.width)
        self.provenance: dict[str, Any] = {}  # how the weights were made, if known; store.py saves it with them
        self.grid = Grid(*c.canvas_size, c.bank.part_size)
        self.prior = Prior(bank, self.grid, **vars(c.prior))
        self.posterior = Posterior(d.channels, size, self.grid, len(bank), c.posterior)
        x = c.decoder
        self.decoder: Decoder | Flow
        if x.likelihood == "flow":
            self.decoder = Flow(d.channels, size, x)
        else:
            outputs = distributions.outputs(x.likelihood, d.channels, x.mixtures)
            self.decoder = Decoder(d.channels, c.canvas_size, size, outputs, x)

    @property
    def bank(self) -> PartBank:
        return self.prior.bank

    @property
    def device(self) -> torch.device:
        return self.bank.parts.device

    def watch(self, call: Callable[[Tensor], None]) -> None:
        """Run `call(x)` on the input of each step of the prior and of each evaluation of a flow. The call may wait, or
        raise an error to stop the work."""
        self.prior.watch(call)
        if isinstance(self.decoder, Flow):
            self.decoder.register_forward_pre_hook(lambda _, given: call(given[0]))

    def train(self, mode: bool = True) -> Self:
        """Set the mode. A prior with frozen weights stays in evaluation mode, so its dropout is off."""
        super().train(mode)
        if not self.prior.start.requires_grad:
            self.prior.eval()
        return self

    # --- from drawings to images ---

    def render(self, drawing: Drawing) -> Tensor:
        """The canvas of each drawing: (B,C,h,w)"""
        return render(expect(drawing).to(self.device), self.bank.parts, self.grid)

    @property
    def has_likelihood(self) -> bool:
        """Whether the decoder gives the distribution of pixels. A flow does not: its density takes an integral."""
        return not isinstance(self.decoder, Flow)

    def likelihood(self, canvas: Tensor) -> distributions.Likelihood:
        """The distribution of pixels given canvases (B,C,h,w)."""
        c = self.config.decoder
        if c.likelihood == "flow":
            raise InputError(
                "this model's decoder is a flow, which gives no distribution of pixels; use log_likelihood"
            )
        return distributions.make(c.likelihood, self.decoder(canvas), self.config.data.channels, c.mixtures)

    @torch.no_grad()
    def decode(
        self, drawing: Drawing, seed: int | Sequence[int] = 0, evaluations: int | None = None,
        freedom: float | None = None, kept: Tensor | None = None,
    ) -> Tensor:  # fmt: skip
        """The picture of each drawing: (B,C,H,W). Batches are padded, so a drawing always gives the same picture.

        A flow makes picture i from the noise of seed + i (or seed[i]). The same drawing with the same seed gives the
        same picture. More evaluations are better and slower; few give a preview. With freedom 0 a flow keeps to the
        drawing; up to 1 it improves on it. In the cells `kept`, (B,L) or (L,) bool, the parser finds the drawn parts
        again: these cells have no freedom (`decoder.maps`), and the picture is moved until the parser agrees
        (projection.py). Other decoders ignore all of these options.
        """
        self._no_batch_statistics()
        if isinstance(self.decoder, Flow):
            drawing = expect(drawing).to(self.device).check(len(self.bank), self.grid.cells)
            kept = None if kept is None else self._cells(kept, len(drawing))
            return flow_pictures(self, drawing, seed, evaluations, freedom, kept)
        canvas, size = self.render(drawing), min(IMAGES_AT_ONCE, fixed_batch(self.device))
        pictures = [canvas.new_zeros(0, self.config.data.channels, *self.decoder.size)]
        for x in canvas.split(size) if len(canvas) else ():
            padded = torch.cat([x, x[-1:].expand(size - len(x), -1, -1, -1)])
            pictures.append(self.likelihood(padded).picture()[: len(x)])
        return torch.cat(pictures)

    @torch.no_grad()
    def redraw(
        self, pictures: "Images", drawing: Drawing, edited: Tensor, seed: int | Sequence[int] = 0,
        evaluations: int | None = None, freedom: float | None = 0.0, keep: bool = True,
    ) -> Tensor:  # fmt: skip
        """Make the cells `edited`, (B,L) or (L,) bool, of pictures (B of them, as `parse` takes them) anew from the
        edited drawings. All other pixels stay the same to the bit, except in a soft seam of half a cell. Returns
        (B,C,H,W) in [0, 1].

        A flow sees the picture around the edited cells while it makes them. With `keep` their parts are kept (see
        `decode`). Other decoders make the whole picture, and only its edited cells are used.
        """
        pictures, drawing = self._images(pictures), expect(drawing).to(self.device)
        if len(pictures) != len(drawing):
            raise InputError(f"{len(drawing)} drawings need as many pictures, not {len(pictures)}")
        edited = self._cells(edited, len(drawing))
        mask = seam(edited, self.grid, self.decoder.size)  # (B,1,H,W)
        if isinstance(self.decoder, Flow):
            self._no_batch_statistics()
            drawing, kept = drawing.check(len(self.bank), self.grid.cells), edited if keep else None
            made = flow_pictures(self, drawing, seed, evaluations, freedom, kept, (pictures, mask))
        else:
            made = torch.lerp(pictures, self.decode(drawing), mask)
        return torch.where(mask > 0, made, pictures)

    def _cells(self, cells: Tensor, count: int) -> Tensor:
        """Check cells, (B,L) or (L,) bool, and expand them to `count` drawings: (B,L)"""
        cells = torch.as_tensor(cells)  # accepts lists and arrays of booleans
        if cells.dtype != torch.bool or cells.shape not in ((self.grid.cells,), (count, self.grid.cells)):
            raise InputError(
                f"cells must be booleans of the shape ({self.grid.cells},) or ({count}, {self.grid.cells}), not "
                f"{cells.dtype} of the shape {tuple(cells.shape)}"
            )
        return cells.to(self.device).expand(count, -1)

    @torch.no_grad()
    def depict(
        self, sketch: Drawing, seed: int | Sequence[int] = 0, evaluations: int | None = None,
        freedom: float | None = None,
    ) -> tuple[Tensor, Drawing]:  # fmt: skip
        """The pictures (B,C,H,W) that `decode` makes of the prior's drawings, and the drawings of these pictures. A
        flow improves on a sketch, so its drawing is the parse of the picture. This is one Gibbs step: a picture given
        its drawing, then the drawing given that picture."""
        images = self.decode(sketch, seed, evaluations, freedom)
        return images, sketch if self.has_likelihood else self.parse(to_bytes(images))

    @torch.no_grad()
    def sample(
        self, n: int = 1, seed: int | Sequence[int] = 0, temperature: float | None = None, top_k: int | None = None,
        top_p: float | None = None, prefix: Drawing | None = None, evaluations: int | None = None,
        freedom: float | None = None,
    ) -> Sample:  # fmt: skip
        """Draw new images. Image i depends only on seed + i (or seed[i]), not on the batch. See `Prior.sample` and, for
        what only a flow has, `decode`."""
        heat = self.config.temperature if temperature is None else temperature
        sketch = self.prior.sample(n, seed, heat, top_k, top_p, prefix)
        images, drawing = self.depict(sketch, seed, evaluations, freedom)
        sample = Sample(images, self.render(drawing), drawing, sketch)
        sample.inverted = self.config.data.inverted
        return sample

    # --- from images to images ---

    def edit(
        self, pictures: "Images", others: "Images", region: editing.Box, seed: int | Sequence[int] = 0, **how: Any
    ) -> editing.Pasted:
        """Pictures with the parts of others in a region, x0,y0,x1,y1 in pixels; the rest of the pictures stays. All are
        parsed first. `editing.paste` takes other drawings. `how` are options of `redraw`."""
        places = editing.region(self.grid, region, self.decoder.size)
        parses = self.parse(pictures), self.parse(others)
        return editing.paste(self, self._images(pictures), *parses, places, seed, **how)

    def complete(
        self, picture: "Images", region: editing.Box, n: int = 8, seed: int = 0, **how: Any
    ) -> completing.Completed:
        """Keep a region of one picture, x0,y0,x1,y1 in pixels, and draw the rest anew, in n ways. The picture is parsed
        first. `completing.complete_picture` takes other drawings, and keeps any cells. It has the options `how`."""
        fixed = torch.zeros(self.grid.cells, dtype=torch.bool)
        fixed[editing.region(self.grid, region, self.decoder.size)] = True
        picture = self._images(picture)
        return completing.complete_picture(self, picture, self.parse(picture), fixed, n, seed, **how)

    # --- from images to drawings ---

    def parse(self, images: "Images") -> Drawing:
        """Alg. 1: from images to drawings.

        Here and below, images are a tensor (N,C,H,W) as the model sees them, uint8 or float in [0, 1]. Anything else is
        read like a picture file: a path, a PIL image, a NumPy array, or a list of these (reading.py).
        """
        return parse(self._stack(images), self.bank.parts, self.grid)

    @torch.no_grad()
    def encode(self, images: "Images", seed: int | Sequence[int] | None = None) -> Drawing:
        """The posterior's drawing of each image: the most likely one, or a sample if a seed is given."""
        self._no_batch_statistics()
        images = self._stack(images, seen=True)
        seeds = None if seed is None else seeds_for(len(images), seed, "images")
        drawings = [Drawing(*torch.zeros(3, 0, self.grid.cells, dtype=torch.int64, device=self.device))]
        for i in range(0, len(images), IMAGES_AT_ONCE):
            choices = self.posterior(to_unit(images[i : i + IMAGES_AT_ONCE].to(self.device)))
            if seeds is not None:
                choices = choices.perturb(self._seeded(seeds[i : i + IMAGES_AT_ONCE]))
            drawings.append(choices.best(self.prior.no_repeat))
        return Drawing.cat(drawings)

    def to_display(self, pictures: Tensor) -> Tensor:
        """Images, canvases or parts in [0, 1] with the light and dark of the original training pictures. If reading
        inverted the pictures (ink on paper), this inverts them back."""
        return 1 - pictures if self.config.data.inverted else pictures

    def reconstruct(self, images: "Images", seed: int | Sequence[int] | None = None) -> Tensor:
        """Encode images with the posterior (never the parser) and decode them: (N,C,H,W)"""
        return self.decode(self.encode(images, seed), 0 if seed is None else seed)

    def _stack(self, images: "Images", seen: bool = False) -> Tensor:
        """Images as a tensor (N,C,H,W), uint8 or float in [0, 1]. With `seen`, images that must be read first are
        binarised if the model was trained so."""
        if not isinstance(images, Tensor):
            from npdraw import reading

            pixels = reading.as_pixels(self, images)
            return reading.as_seen(self, pixels) if seen else pixels
        expected = (self.config.data.channels, *self.decoder.size)
        if images.shape[1:] != expected:
            raise InputError(f"this model takes images of the shape (N, {str(expected)[1:]}, not {tuple(images.shape)}")
        if not images.is_floating_point() and images.dtype != torch.uint8:
            raise InputError(f"a tensor of images needs bytes (uint8) or floats in [0, 1], not {images.dtype}")
        check_range(images)
        return images

    def _images(self, images: "Images", seen: bool = False) -> Tensor:
        """The same as floats on the model's device."""
        return to_unit(self._stack(images, seen).to(self.device))

    def _scored(self, images: "Images") -> Tensor:
        """The same for a likelihood. That of binarised images has no meaning for grey levels."""
        x = self._images(images, seen=True)
        if self.config.data.ink and not bool(((x == 0) | (x == 1)).all()):
            raise InputError(
                "this model scores binarised images, whose pixels are 0 or 1; binarise these first "
                "(npdraw.data.binarise)"
            )
        return x

    def _seeded(self, seeds: Tensor) -> Tensor:
        """Uniforms for one posterior sample per seed: (B, T, M + L + 1)"""
        t, n = self.grid.cells, sum(self.posterior.outputs)
        return uniform(seeds.to(self.device), t * n, Stream.POSTERIOR).reshape(-1, t, n).float().to(self.device)

    def _no_batch_statistics(self) -> None:
        if self.posterior.training or self.decoder.training or self.prior.training:
            raise InputError("call .eval() first: in training mode BatchNorm mixes images and dropout changes numbers")

    # --- scores ---

    def regulariser(self, images: "Images", parses: Drawing) -> Tensor:
        """-log q(parse given image), summed over steps and variables: (B,)"""
        parses.check(len(self.bank), self.grid.cells)
        return -self._log_q(self.posterior(self._images(images)), parses.to(self.device))

    def _log_q(self, choices: Choices, drawing: Drawing) -> Tensor:
        return self._free(choices, drawing).log_prob(drawing).total()

    def _free(self, choices: Choices, drawing: Drawing) -> Choices:
        """The posterior obeys `no_repeat` as the prior does: `where` is renormalised over places not used before."""
        return choices.forbid(drawn_before(drawing, self.grid.cells)) if self.prior.no_repeat else choices

    def _sampled(self, choices: Choices, noise: Tensor) -> tuple[Choices, Drawing]:
        drawing = choices.perturb(noise).best(self.prior.no_repeat)
        return self._free(choices, drawing), drawing

    def _explained(self, images: Tensor, drawing: Drawing) -> Tensor:
        """log p(image given its drawing): (B,). Indices are not checked."""
        canvas = self.grid.join(last_cells(drawing, self.bank.parts, self.grid.cells))
        return self.likelihood(canvas).log_prob(images)

    @torch.no_grad()
    def elbo(self, images: "Images", seed: int = 0) -> Elbo:
        """The bound from one hard sample per image, in nats. The KL of each step is analytic, given the sampled steps
        before it. A tensor of images must be binarised already if the model was trained on binarised images."""
        self._no_batch_statistics()
        images = self._scored(images)
        found = [Elbo(*torch.zeros(5, 0, device=self.device))]
        for i in range(0, len(images), IMAGES_AT_ONCE):
            x = images[i : i + IMAGES_AT_ONCE]
            choices, drawing = self._sampled(self.posterior(x), self._seeded(torch.arange(seed + i, seed + i + len(x))))
            kl = [term.sum(1) for term in choices.kl(self.prior.choices(drawing))]
            reconstruction = self._explained(x, drawing)
            found.append(Elbo(reconstruction - sum(kl), reconstruction, *kl))
        return Elbo(*(torch.cat(xs) for xs in zip(*found, strict=True)))

    @torch.no_grad()
    def log_weights(self, images: "Images", samples: int = 50, seed: int = 0) -> Tensor:
        """log p(x, z) - log q(z given x) of `samples` hard drawings z per image, in nats: (N, samples) float64.

        The work is done in chunks of images x samples. The seed of sample j of image i does not depend on the chunks.
        """
        self._no_batch_statistics()
        if samples < 1:
            raise InputError(f"a likelihood needs at least one sample, not {samples}")
        images, at_once = self._scored(images), max(1, IMAGES_AT_ONCE // samples)
        found = [to_float64(torch.zeros(0, samples, device=self.device))]
        for i in range(0, len(images), at_once):
            x = images[i : i + at_once]
            posterior = self.posterior(x)
            weights = []
            for first in range(0, samples, IMAGES_AT_ONCE):
                k = min(IMAGES_AT_ONCE, samples - first)
                images_ = seed + torch.arange(i, i + len(x))[:, None] * samples
                seeds = (images_ + torch.arange(first, first + k)).flatten()
                repeated = x.repeat_interleave(k, dim=0)
                each = Choices(*(logits.repeat_interleave(k, dim=0) for logits in posterior))
                choices, drawing = self._sampled(each, self._seeded(seeds))
                log_p = to_float64(self._explained(repeated, drawing)) + to_float64(self.prior.terms(drawing).total())
                weights.append((log_p - to_float64(choices.log_prob(drawing).total())).reshape(len(x), k))
            found.append(torch.cat(weights, dim=1))
        return torch.cat(found)

    def log_likelihood(self, images: "Images", samples: int | None = None, seed: int = 0) -> Tensor:
        """A lower bound of log p(x) in nats, (N,) float64: importance-weighted, one logsumexp over the weights of all
        `samples` drawings of an image, by default 50.

        For a flow, the only drawing is the parse: log p(parse) + log p(x given the parse) (density.py).
        """
        if self.has_likelihood:
            count = 50 if samples is None else samples
            return self.log_weights(images, count, seed).logsumexp(1) - math.log(count)
        if samples not in (None, 1):
            raise InputError(f"a flow has the likelihood of one drawing per image, its parse, not of {samples}")
        pixels = to_bytes(self._images(images))
        parses = self.parse(pixels)
        chunks = (parses[i : i + IMAGES_AT_ONCE] for i in range(0, len(pixels), IMAGES_AT_ONCE))
        drawn = torch.cat([torch.zeros(0), *(self.prior.log_prob(x).cpu() for x in chunks)])
        return drawn.double() + log_density(self, pixels, parses, seed).mean(1)

    # --- training ---

    def training_loss(
        self, images: Tensor, parses: Drawing, noise: Tensor, temperature: Tensor, parsed: Tensor | None,
        kl_weight: float,
    ) -> Loss:  # fmt: skip
        """The loss of one batch of stage two. Where `parsed` (B,) is true, the canvas comes from the parse, not from
        the posterior. If `parsed` is None, this holds for all images.

        Reconstruction is summed over pixels, KL and regulariser over steps and variables; all are averaged over the
        batch. The KL of each step is analytic, given the (relaxed) canvases before it. For a flow, reconstruction is
        the mean squared error of the velocity. A flow has no bound, so it has no KL.
        """
        stage, places, parts = self.config.model_stage, self.grid.cells, self.bank.parts
        choices = self.posterior(images)
        if isinstance(self.decoder, Flow):
            error = self.decoder.loss(images, *lesson(self, parses))
            regulariser = -self._log_q(choices, parses).mean()
            return Loss(error + stage.regulariser * regulariser, error, images.new_zeros(()), regulariser)
        last, kl = last_cells(parses, parts, places), images.new_zeros(())
        if kl_weight or parsed is not None:
            perturbed = choices.perturb(noise)
            drawing = perturbed.best(self.prior.no_repeat)
            soft = relax(self._free(perturbed, drawing), temperature, self.config.posterior.whether)
            cells = soft_cell_canvases(*soft, parts)  # (B,T,L,D)
            if parsed is not None:
                last = torch.where(parsed[:, None, None], last, cells[:, -1])
            if kl_weight:
                drawn = soft.whether.to(cells.dtype)
                place, newest = soft.where * drawn[..., None], (soft.what[:, :-1], drawn[:, :-1])
                prior = self.prior(cells[:, :-1], place[:, :-1], newest)
                kl = kl_weight * self._free(choices, drawing).kl(prior).total().mean()
        reconstruction = -self.likelihood(self.grid.join(last)).log_prob(images).mean()
        regulariser = -self._log_q(choices, parses).mean()
        total = reconstruction + kl + stage.regulariser * regulariser
        return Loss(total, reconstruction, kl, regulariser)

    # --- files ---

    def save_pretrained(self, folder: str | Path) -> None:
        """Write weights (safetensors) and config (JSON) into a folder."""
        from npdraw import store

        store.save_model(self, folder)

    @classmethod
    def from_pretrained(cls, source: str | Path, device: str | torch.device = "cpu") -> "NPDraw":
        """Load a model in evaluation mode. The source is a run directory, a saved model's folder, a name
        (docs/models.md), or OWNER/NAME on the Hugging Face hub, optionally with @REVISION."""
        from npdraw import store

        return store.load_model(source, device)

    def push_to_hub(self, repo: str, private: bool = False, message: str = "Upload an npdraw model") -> str:
        """Upload the files of `save_pretrained` to OWNER/NAME on the Hugging Face hub. Returns the commit's address."""
        from npdraw import hub

        return hub.upload(self, repo, private, message)
