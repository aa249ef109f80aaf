"""Metrics of edits. `editing`: the results of edits of samples; for a flow, also how different the images of one canvas
are. `vae`: whole pictures of edited drawings, beside those of a VAE."""

from collections.abc import Iterator

from torch import Tensor

from npdraw.evaluation import edits, locality
from npdraw.evaluation.evaluation import Evaluation
from npdraw.evaluation.features import filled
from npdraw.evaluation.metrics import gives_rows
from npdraw.evaluation.protocol import Drawn
from npdraw.evaluation.score import Score, known
from npdraw.noise import to_float64

COMPARED = 1_000  # parses whose images are compared


def _edits(e: Evaluation) -> int:
    """The number of samples to edit."""
    return min(e.request.images, e.wanted)


def _space(e: Evaluation) -> str:
    """The network's largest space that the edited samples fill. Empty if no network is loaded or none is filled."""
    if not e.has_network:
        return ""
    return next(iter(filled(e.inception, min(_edits(e), len(e.sides.reference)))), "")


def _notes(e: Evaluation) -> list[str]:
    if not e.has_network or _space(e):
        return []
    return [
        f"FID of edits is left out: it needs at least {e.fewest:,} images on either side; there are "
        f"{_edits(e):,} (--images) and {len(e.sides.reference):,}"
    ]


@gives_rows(notes=_notes)
def editing(e: Evaluation) -> Iterator[Score]:
    model, seen, seed, n = e.model, e.seen, e.request.seed, _edits(e)
    pixels, drawing, sketch = e.drawn
    assert drawing is not None and sketch is not None
    drawn = Drawn(pixels[:n], drawing[:n], sketch[:n])
    ceiling = edits.found(model, e.decoded(seen.parses, "parses, decoded", freedom=0.0), seen.parses)
    space = _space(e)

    def distance(key: str, label: str, pixels: Tensor, note: str) -> Score:
        name, said = e.named("FID", space)
        return Score(f"{key}_{name}", label + said, *e.distance(pixels, space), note=note)

    how = e.decoding | {"freedom": 0.0}  # as people edit
    yield from edits.edit_rows(model, drawn, ceiling, seed, e.progress, distance if space else None, **how)
    if not model.has_likelihood:
        between = edits.diversity(model, seen.parses[:COMPARED], **e.decoding)
        note = "mean difference of pixels, two images of a parse, ± of the mean; real: images of two parses"
        yield Score("diversity", "diversity of one canvas", between.one, known(between.error), between.two, note)


def _slow(e: Evaluation) -> str:
    """Says that a VAE takes long to train, unless it was asked for."""
    return "" if e.request.asks("vae") else "trains a VAE, which takes minutes on a CPU; ask for it: --metrics vae"


@gives_rows(_slow)
def vae(e: Evaluation) -> Iterator[Score]:
    seed = e.request.seed
    yield from locality.locality_rows(e.model, e.vae, e.seen, seed)
    images, scale, unit = e.likely
    bound = scale * float(to_float64(e.vae.elbo(images, seed).elbo).mean())
    note = f"{unit}; {sum(p.numel() for p in e.vae.parameters()):,} weights"
    yield Score("nll_vae", "  NLL by ELBO of that VAE", -bound, note=note)
