"""`NPDraw`: bounds against loops and exact sums, samples, reconstructions, and the training loss."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import reference
from drawings import drawing_of, steps_of
from npdraw import model as models
from npdraw.bank import PartBank
from npdraw.canvas import last_cells, place_masks, used_places
from npdraw.config import Config, from_dict
from npdraw.drawing import Drawing
from npdraw.errors import InputError
from npdraw.model import NPDraw


def tiny(
    height: int = 2, width: int = 6, k: int = 2, m: int = 2, c: int = 1, canvas: int = 28, seed: int = 0, **more: Any
) -> NPDraw:
    """A small model with random weights, in evaluation mode; `more` holds sections of the config."""
    sections: dict[str, dict[str, Any]] = {
        "data": {"height": height, "width": width, "channels": c, "canvas": canvas},
        "bank": {"part_size": k, "parts": m},
        "prior": {"width": 8, "depth": 1, "heads": 2, "head_dim": 4, "mlp": 12, "dropout": 0.3, "stem_channels": 4},
        "posterior": {"width": 8},
        "decoder": {"width": 8},
    }
    for name, section in more.items():
        sections[name] = {**sections.get(name, {}), **section}
    torch.manual_seed(seed)
    model = NPDraw(from_dict(Config, sections), PartBank(torch.rand(m, c, k, k) * 0.9 + 0.1))
    with torch.no_grad():
        for name, p in model.named_parameters():
            if p.ndim > 1:
                p.copy_(torch.randn(p.shape) * 1.5 / math.sqrt(p[0].numel()))
            elif "norm" not in name:
                p.add_(torch.randn(p.shape) * 0.2)
        for name, buffer in model.named_buffers():
            if name.endswith("running_mean"):
                buffer.copy_(torch.randn(buffer.shape) * 0.1)
            elif name.endswith("running_var"):
                buffer.copy_(torch.rand(buffer.shape) + 0.5)
    return model.eval()


def random_images(model: NPDraw, n: int, seed: int = 0) -> Tensor:
    """Binary images of the model's size, float."""
    g = torch.Generator().manual_seed(seed)
    return (torch.rand(n, model.config.data.channels, *model.decoder.size, generator=g) < 0.4).float()


@torch.no_grad()
def q_heads(model: NPDraw, image: Tensor) -> list[reference.Heads]:
    """The posterior's log-probabilities of every step; they do not depend on the steps before."""
    return [
        reference.heads_of(*row)
        for row in zip(*(x[0].double().tolist() for x in model.posterior(image[None])), strict=True)
    ]


def plain_log_q(model: NPDraw, image: Tensor, steps: list[reference.Step]) -> float:
    heads = q_heads(model, image)
    return reference.log_prob_loop(steps, lambda before: heads[len(before)], model.prior.no_repeat)


@torch.no_grad()
def plain_log_p(model: NPDraw, image: Tensor, drawing: Drawing) -> float:
    """log p(x given z) with the canvas by the loop of Eq. 3."""
    what, where, whether = (x[0].tolist() for x in drawing.tensors())
    grid = model.grid
    canvas = reference.render_loop(what, where, whether, model.bank.parts.numpy(), grid.height, grid.width).canvases
    logits = model.decoder(torch.from_numpy(canvas[-1:]).float())
    return reference.bernoulli_log_prob(logits.numpy(), image.numpy())


@torch.no_grad()
def exact(model: NPDraw, images: Tensor) -> Tensor:
    """log p(x) by the sum over every drawing there is: (N,) float64."""
    rows = list(reference.all_drawings(model.prior.steps, len(model.bank), model.prior.places, model.prior.no_repeat))
    total = torch.full((len(images),), -math.inf, dtype=torch.float64)
    for i in range(0, len(rows), 2048):
        drawing = drawing_of(rows[i : i + 2048])
        log_p, likelihood = model.prior.log_prob(drawing).double(), model.likelihood(model.render(drawing))
        for j, image in enumerate(images):
            each = log_p + likelihood.log_prob(image.expand(len(drawing), *image.shape)).double()
            total[j] = torch.logaddexp(total[j], each.logsumexp(0))
    return total


# --- bounds ----------------------------------------------------------------------------------


@pytest.mark.parametrize("no_repeat", [False, True])
@pytest.mark.parametrize("mask", ["step", "union"])
def test_elbo_is_its_loop(no_repeat: bool, mask: str) -> None:
    """Reconstruction of the sampled drawing minus the steps' KLs given the sampled steps before them."""
    model = tiny(5, 5, 2, 3, prior={"no_repeat": no_repeat, "mask": mask})
    images = random_images(model, 4)
    got = model.elbo(images, seed=11)
    drawing = model.encode(images, seed=11)
    for b in range(4):
        reconstruction = plain_log_p(model, images[b], drawing[b])
        steps, heads = steps_of(drawing, b), q_heads(model, images[b])
        model.prior.no_repeat = False
        p = [
            reference.heads_of(*row)
            for row in zip(*(x[0].double().tolist() for x in model.prior.choices(drawing[b])), strict=True)
        ]
        model.prior.no_repeat = no_repeat
        if no_repeat:  # renormalise both over the places that are free
            for t in range(len(steps)):
                used = {place for _, place, drawn in steps[:t] if drawn}
                heads[t], p[t] = (freed(h, used) for h in (heads[t], p[t]))
        kl = reference.kl_loop(heads, p)
        assert got.reconstruction[b].item() == pytest.approx(reconstruction, abs=1e-3)
        assert (got.what + got.where + got.whether)[b].item() == pytest.approx(kl, abs=1e-3)
        assert got.elbo[b].item() == pytest.approx(reconstruction - kl, abs=2e-3)


def freed(heads: reference.Heads, used: set[int]) -> reference.Heads:
    total = reference.logsumexp([w for place, w in enumerate(heads.where) if place not in used])
    where = [-math.inf if place in used else w - total for place, w in enumerate(heads.where)]
    return heads._replace(where=where)


@pytest.mark.parametrize("no_repeat", [False, True])
def test_importance_weights_are_their_loop(no_repeat: bool) -> None:
    """Trap 7: log p(x, z) - log q(z given x) of the same hard z, one logsumexp over all samples."""
    model = tiny(4, 4, 2, 3, prior={"no_repeat": no_repeat})
    images, k = random_images(model, 3), 7
    got = model.log_likelihood(images, samples=k, seed=5)
    assert got.dtype == torch.float64 and got.shape == (3,)
    for i in range(3):
        seeds = [5 + i * k + j for j in range(k)]
        drawing = model.encode(images[i : i + 1].expand(k, -1, -1, -1), seed=seeds)
        weights = [
            plain_log_p(model, images[i], drawing[j])
            + model.prior.log_prob(drawing[j]).item()
            - plain_log_q(model, images[i], steps_of(drawing, j))
            for j in range(k)
        ]
        assert got[i].item() == pytest.approx(reference.iwae(weights), abs=2e-3)


@pytest.mark.parametrize("no_repeat", [False, True])
@pytest.mark.parametrize("mask", ["step", "union"])
def test_importance_weighting_finds_the_exact_likelihood(no_repeat: bool, mask: str) -> None:
    model = tiny(prior={"no_repeat": no_repeat, "mask": mask}, seed=3)
    images = random_images(model, 4)
    want = exact(model, images)
    got = model.log_likelihood(images, samples=20_000)
    assert torch.allclose(got, want, atol=0.05)
    few = torch.stack([model.log_likelihood(images, samples=5, seed=s * 1000) for s in range(20)]).mean(0)
    assert (few <= want + 0.1).all()
    bound = torch.stack([model.elbo(images, seed=s * 1000).elbo for s in range(50)]).mean(0)
    assert (bound.double() <= want + 0.1).all()


def test_the_elbo_is_a_bound_by_the_posteriors_own_divergence() -> None:
    """log p(x) - ELBO is KL(q given x, p given x): by enumeration, with the ELBO as the average over many samples."""
    model = tiny(seed=1)
    image = random_images(model, 1, seed=4)
    rows = list(reference.all_drawings(3, 2, 3))
    drawing = drawing_of(rows)
    with torch.no_grad():
        log_p = model.prior.log_prob(drawing).double()
        log_x = model.likelihood(model.render(drawing)).log_prob(image.expand(len(rows), -1, -1, -1)).double()
    heads = q_heads(model, image[0])
    log_q = torch.tensor([reference.log_prob_loop(row, lambda before: heads[len(before)]) for row in rows])
    assert log_q.exp().sum().item() == pytest.approx(1, abs=1e-5)
    want = (log_q.double().exp() * (log_p + log_x - log_q)).sum().item()
    got = model.elbo(image.expand(20_000, -1, -1, -1)).elbo.double()
    assert got.mean().item() == pytest.approx(want, abs=5 * got.std().item() / math.sqrt(len(got)) + 1e-3)


def test_samples_come_in_chunks_that_meet_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Trap 7: more samples than a chunk, and any chunk size, give one and the same figure."""
    model = tiny()
    images = random_images(model, 5)
    whole = model.log_likelihood(images, samples=300)
    for size in (1000, 64, 7, 1):
        monkeypatch.setattr(models, "IMAGES_AT_ONCE", size)
        count = slice(None) if size > 1 else slice(0, 1)
        assert torch.allclose(model.log_likelihood(images[count], samples=300), whole[count], atol=1e-3)


def test_figures_do_not_depend_on_how_a_set_is_split(monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny()
    images = random_images(model, 9)
    bound, figure = model.elbo(images, seed=3), model.log_likelihood(images, samples=10, seed=3)
    apart = [model.elbo(images[i : i + 2], seed=3 + i).elbo for i in range(0, 9, 2)]
    assert torch.allclose(torch.cat(apart), bound.elbo, atol=1e-4)
    apart = [model.log_likelihood(images[i : i + 4], samples=10, seed=3 + 10 * i) for i in range(0, 9, 4)]
    assert torch.allclose(torch.cat(apart), figure, atol=1e-4)
    drawings = model.encode(images, seed=3)
    monkeypatch.setattr(models, "IMAGES_AT_ONCE", 4)
    assert torch.allclose(model.elbo(images, seed=3).elbo, bound.elbo, atol=1e-4)
    assert model.encode(images, seed=3) == drawings


def test_scores_see_no_dropout_and_leave_no_trace() -> None:
    model = tiny()
    images = random_images(model, 3)
    state = {k: v.clone() for k, v in model.state_dict().items()}
    first = model.elbo(images).elbo
    torch.manual_seed(77)
    assert torch.equal(model.elbo(images).elbo, first) and not first.requires_grad
    assert all(torch.equal(v, state[k]) for k, v in model.state_dict().items())


def test_bytes_are_floats_over_255() -> None:
    model = tiny(decoder={"likelihood": "mixture", "mixtures": 2})
    images = torch.randint(0, 256, (3, 1, 2, 6), dtype=torch.uint8)
    floats = images.float() / 255
    assert torch.equal(model.elbo(images).elbo, model.elbo(floats).elbo)
    assert torch.equal(model.log_likelihood(images, 3), model.log_likelihood(floats, 3))
    assert model.encode(images) == model.encode(floats) and model.parse(images) == model.parse(floats)
    parses = model.parse(images)
    assert torch.equal(model.regulariser(images, parses), model.regulariser(floats, parses))


@pytest.mark.parametrize("likelihood", ["bernoulli", "mixture"])
def test_nothing_in_nothing_out(likelihood: str) -> None:
    model = tiny(decoder={"likelihood": likelihood})
    none = random_images(model, 0)
    assert len(model.encode(none)) == len(model.encode(none, seed=0)) == 0
    assert model.decode(model.encode(none)).shape == (0, 1, 2, 6)
    assert model.reconstruct(none).shape == (0, 1, 2, 6)
    assert model.sample(0).images.shape == (0, 1, 2, 6)


def test_no_images_no_figures() -> None:
    model = tiny()
    none = random_images(model, 0)
    assert model.log_likelihood(none).shape == (0,)
    assert [x.shape for x in model.elbo(none)] == [(0,)] * 5


@pytest.mark.parametrize("samples", [0, -3])
def test_a_likelihood_needs_a_sample(samples: int) -> None:
    with pytest.raises(InputError, match="sample"):
        tiny().log_likelihood(torch.zeros(1, 1, 2, 6), samples=samples)


@pytest.mark.parametrize("shape", [(2, 3, 2, 6), (2, 1, 6, 2), (2, 6), (1, 2, 6)])
def test_images_of_another_shape_are_refused(shape: tuple[int, ...]) -> None:
    model, images = tiny(), torch.zeros(shape)
    for call in (model.encode, model.elbo, model.log_likelihood, model.reconstruct, model.parse):
        with pytest.raises(InputError):
            call(images)


@pytest.mark.parametrize("wrong", ["a.png", np.zeros((2, 1, 2, 6)), None, 3, [torch.zeros(1, 2, 6)]], ids=type)
def test_what_is_no_tensor_and_no_drawing_is_refused_in_words(wrong: Any) -> None:
    model, flow = tiny(), tiny(decoder={"likelihood": "flow"}, model_stage={"parsed_start": 1.0, "parsed_end": 1.0})
    for call in (model.encode, model.reconstruct):
        with pytest.raises(InputError, match=r"cannot read a\.png|needs the shape|not NoneType|not int|not Tensor"):
            call(wrong)
    for show in (model.decode, model.render, flow.decode):
        with pytest.raises(InputError, match=f"this needs a Drawing, not {type(wrong).__name__}"):
            show(wrong)


@pytest.mark.parametrize(
    ("wrong", "hint"),
    [
        ({"n": "3"}, "number of samples"),
        ({"n": 2.5}, "number of samples"),
        ({"seed": 1.5}, "a seed must be an integer"),
        ({"seed": "one"}, "a seed must be an integer"),
        ({"temperature": "hot"}, "temperature must be a number"),
        ({"top_k": "3"}, "top-k must be a whole number"),
        ({"top_k": 1.5}, "top-k must be a whole number"),
        ({"top_p": "all"}, "top-p must be a number"),
        ({"prefix": np.zeros((1, 3))}, "this needs a Drawing"),
    ],
    ids=str,
)
def test_sample_refuses_other_types_in_words(wrong: dict[str, Any], hint: str) -> None:
    with pytest.raises(InputError, match=hint):
        tiny().sample(**wrong)


def test_regulariser_refuses_images_and_parses_that_do_not_fit() -> None:
    model = tiny()
    images = random_images(model, 2)
    parses = model.parse(images)
    with pytest.raises(InputError):
        model.regulariser(torch.zeros(2, 1, 4, 6), parses)
    for what, where in ((2, 0), (0, 3), (-1, 0)):
        wrong = Drawing(torch.full((2, 3), what), torch.full((2, 3), where), torch.ones(2, 3, dtype=torch.bool))
        with pytest.raises(InputError):
            model.regulariser(images, wrong)


# --- regulariser -----------------------------------------------------------------------------


@pytest.mark.parametrize("no_repeat", [False, True])
def test_regulariser_is_minus_log_q_of_the_parse_summed(no_repeat: bool) -> None:
    """Trap 10: over all steps and the three variables, never a mean."""
    model = tiny(6, 6, 2, 3, prior={"no_repeat": no_repeat})
    images = random_images(model, 4)
    parses = model.parse(images)
    assert parses.whether.any() and not parses.whether.all()
    got = model.regulariser(images, parses)
    want = [-plain_log_q(model, images[b], steps_of(parses, b)) for b in range(4)]
    assert got.tolist() == pytest.approx(want, abs=1e-3)
    assert got.requires_grad


# --- sampling, encoding, decoding ------------------------------------------------------------


@pytest.mark.parametrize("likelihood", ["bernoulli", "mixture"])
def test_a_seed_is_one_picture_in_any_batch(likelihood: str) -> None:
    model = tiny(6, 6, 3, 3, decoder={"likelihood": likelihood, "mixtures": 2})
    whole = model.sample(70)
    assert whole.images.shape == (70, 1, 6, 6) and whole.images.min() >= 0 and whole.images.max() <= 1
    for first, n in ((0, 1), (5, 1), (63, 1), (64, 6), (0, 64), (7, 7), (69, 1)):
        part = model.sample(n, seed=first)
        assert part.drawing == whole.drawing[first : first + n]
        assert torch.equal(part.images, whole.images[first : first + n])
        assert torch.equal(part.canvases, whole.canvases[first : first + n])
    again = model.sample(seed=[9, 3, 9])
    assert torch.equal(again.images, whole.images[[9, 3, 9]])


def test_an_image_is_encoded_the_same_in_any_batch() -> None:
    model = tiny(6, 6, 3, 3)
    images = torch.rand(300, 1, 6, 6, generator=torch.Generator().manual_seed(0))
    whole, drawn = model.encode(images), model.encode(images, seed=5)
    assert len({tuple(row) for row in drawn.what.tolist()}) > 50
    for first, n in ((0, 1), (255, 2), (256, 44), (7, 70), (299, 1)):
        assert model.encode(images[first : first + n]) == whole[first : first + n]
        assert model.encode(images[first : first + n], seed=5 + first) == drawn[first : first + n]


def test_a_sample_is_its_drawing_rendered_and_decoded() -> None:
    model = tiny(5, 7, 3, 3)
    sample = model.sample(5)
    for b in range(5):
        what, where, whether = (x[b].tolist() for x in sample.drawing.tensors())
        loop = reference.render_loop(what, where, whether, model.bank.parts.numpy(), 5, 7)
        assert torch.equal(sample.canvases[b], torch.from_numpy(loop.canvases[-1]).float())
    assert torch.allclose(sample.images, model.decoder(sample.canvases).sigmoid(), atol=1e-5)
    assert torch.equal(model.decode(sample.drawing), sample.images)


def test_the_models_temperature_is_the_default() -> None:
    model = tiny(6, 6, 2, 3)
    object.__setattr__(model.config, "temperature", 0.0)
    cold = model.sample(4)
    assert cold.drawing == model.sample(4, temperature=0.0).drawing != model.sample(4, temperature=1.0).drawing
    assert model.sample(4, prefix=cold.drawing.first(3), temperature=2.0).drawing.first(3) == cold.drawing.first(3)


def test_encoding_is_the_most_likely_or_a_sample() -> None:
    model = tiny(6, 6, 2, 3)
    images = random_images(model, 6)
    best = model.encode(images)
    assert best == model.encode(images)
    for b in range(6):
        for (what, where, whether), head in zip(steps_of(best, b), q_heads(model, images[b]), strict=True):
            assert whether == (head.draw > head.skip)
            if whether:
                assert head.what[what] == max(head.what) and head.where[where] == max(head.where)
    first, second = model.encode(images, seed=0), model.encode(images, seed=100)
    assert first == model.encode(images, seed=0) and first != second and first != best
    assert model.encode(images[2:3], seed=2) == first[2]
    assert model.encode(images, seed=[5] * 6)[1] == model.encode(images[1:2], seed=5)


def test_encode_wants_a_seed_for_every_image() -> None:
    model = tiny()
    with pytest.raises(InputError, match="seed"):
        model.encode(random_images(model, 3), seed=[1, 2])


def test_the_posteriors_samples_come_as_often_as_they_should() -> None:
    """Whole drawings of one image against q, without repeats too."""
    for no_repeat in (False, True):
        model = tiny(2, 4, 2, 2, prior={"no_repeat": no_repeat})
        image = random_images(model, 1)
        drawing = model.encode(image.expand(6000, -1, -1, -1), seed=1)
        rows = list(reference.all_drawings(2, 2, 2, no_repeat))
        found = [tuple(steps_of(drawing, b)) for b in range(len(drawing))]
        assert set(found) <= set(rows)
        probs = [math.exp(plain_log_q(model, image[0], list(row))) for row in rows]
        assert reference.frequencies_fit([found.count(row) for row in rows], probs)


def test_reconstruction_goes_through_the_posterior_and_never_the_parser(monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny(6, 6, 2, 3)
    images = random_images(model, 3)
    want = model.decode(model.encode(images))

    def never(*_: object, **__: object) -> Drawing:
        raise AssertionError("the parser was asked")

    monkeypatch.setattr(models, "parse", never)
    monkeypatch.setattr(NPDraw, "parse", never)
    assert torch.equal(model.reconstruct(images), want)
    assert model.reconstruct(images, seed=4).shape == images.shape
    model.elbo(images), model.log_likelihood(images, 3), model.sample(2)


@pytest.mark.parametrize("heads", ["cell", "global"])
def test_a_canvas_smaller_than_the_image(heads: str) -> None:
    """The posterior sees the image whole, bank and parser its average, the decoder gives it back whole."""
    model = tiny(16, 12, 2, 3, c=3, canvas=8, posterior={"heads": heads}, decoder={"likelihood": "mixture"})
    assert (model.grid.height, model.grid.width, model.grid.cells) == (8, 6, 12)
    images = torch.rand(2, 3, 16, 12)
    sample = model.sample(2)
    assert sample.images.shape == (2, 3, 16, 12) and sample.canvases.shape == (2, 3, 8, 6)
    assert model.reconstruct(images).shape == images.shape
    assert model.elbo(images).elbo.isfinite().all()
    # a checkerboard of the same area averages: the same parse, another posterior
    fine = torch.zeros(1, 3, 16, 12)
    fine[..., ::2, ::2] = fine[..., 1::2, 1::2] = 1
    flat = torch.full_like(fine, 0.5)
    assert model.parse(fine) == model.parse(flat)
    assert (model.posterior(fine).what - model.posterior(flat).what).abs().max() > 1e-4


def test_training_mode_is_refused_where_batchnorm_would_mix_images() -> None:
    """Trap 8."""
    model = tiny().train()
    images = random_images(model, 2)
    drawing = Drawing(*torch.zeros(3, 2, 3, dtype=torch.int64))
    for call in (
        lambda: model.decode(drawing),
        lambda: model.encode(images),
        lambda: model.elbo(images),
        lambda: model.log_likelihood(images),
        lambda: model.reconstruct(images),
        lambda: model.sample(1),
    ):
        with pytest.raises(InputError, match="eval"):
            call()


def test_a_bank_that_is_not_the_configs_is_refused() -> None:
    config = tiny().config
    for shape in ((3, 1, 2, 2), (2, 1, 3, 3), (2, 3, 2, 2)):
        with pytest.raises(InputError, match="the bank has"):
            NPDraw(config, PartBank(torch.rand(shape)))


# --- training --------------------------------------------------------------------------------


def loss_of(model: NPDraw, images: Tensor, noise: Tensor, **changes: Any) -> models.Loss:
    options: dict[str, Any] = {
        "parses": model.parse(images),
        "temperature": torch.tensor(0.8),
        "parsed": torch.zeros(len(images), dtype=torch.bool),
        "kl_weight": 1.0,
        **changes,
    }
    return model.training_loss(images, options.pop("parses"), noise, **options)


def test_a_frozen_prior_stays_in_evaluation_mode_and_lets_gradient_through() -> None:
    """Trap 9."""
    model = tiny(4, 4, 2, 3)
    assert model.train().prior.training
    model.prior.requires_grad_(False)
    model.train()
    assert model.training and model.posterior.training and model.decoder.training
    assert not any(module.training for module in model.prior.modules())
    # canvases and masks that go into the prior get a gradient from the KL, its weights none
    images, noise = random_images(model, 4), torch.rand(4, 4, 8)
    seen: list[Tensor] = []
    inner = model.prior.forward

    def watched(cells: Tensor, masks: Tensor, parts: tuple[Tensor, Tensor]) -> Any:
        seen.extend((cells, masks))
        for x in seen:
            x.retain_grad()
        return inner(cells, masks, parts)

    model.prior.forward = watched  # type: ignore[method-assign]
    loss_of(model, images, noise).kl.backward()
    assert all(x.grad is not None and x.grad.abs().sum() > 0 for x in seen)
    assert all(p.grad is None for p in model.prior.parameters())
    assert all(p.grad is not None for p in model.posterior.parameters())


def test_a_joint_prior_learns_and_its_dropout_is_on() -> None:
    model = tiny(4, 4, 2, 3).train()
    assert model.prior.training
    loss_of(model, random_images(model, 4), torch.rand(4, 4, 8)).total.backward()
    assert all(p.grad is not None for p in model.prior.parameters())


def test_the_loss_is_the_weighted_sum_of_means_of_sums() -> None:
    model = tiny(6, 6, 2, 3, model_stage={"regulariser": 7.0})
    images, noise = random_images(model, 5), torch.rand(5, 9, 3 + 9 + 1)
    loss = loss_of(model, images, noise, kl_weight=3.0)
    want = loss.reconstruction + loss.kl + 7 * loss.regulariser
    assert loss.total.item() == pytest.approx(want.item(), rel=1e-6)
    assert loss.kl.item() == pytest.approx(3 * loss_of(model, images, noise, kl_weight=1.0).kl.item(), rel=1e-5)
    regulariser = model.regulariser(images, model.parse(images)).mean()
    assert loss.regulariser.item() == pytest.approx(regulariser.item(), rel=1e-5)
    none = loss_of(model, images, noise, kl_weight=0.0)
    assert none.kl.item() == 0 and none.reconstruction.item() == pytest.approx(loss.reconstruction.item(), rel=1e-6)


@pytest.mark.parametrize("parts", [False, True])
@pytest.mark.parametrize("no_repeat", [False, True])
@pytest.mark.parametrize("whether", ["none", "relaxed"])
def test_the_coldest_training_loss_is_the_bound(whether: str, no_repeat: bool, parts: bool) -> None:
    """At temperature 0 the relaxed drawing is the hard one: reconstruction and KL are those of `elbo` (trap 2)."""
    model = tiny(5, 5, 2, 3, posterior={"whether": whether}, prior={"no_repeat": no_repeat, "parts": parts})
    images = random_images(model, 6)
    bound = model.elbo(images, seed=2)
    noise = model._seeded(torch.arange(2, 8))
    loss = loss_of(model, images, noise, temperature=torch.tensor(1e-6))
    assert loss.reconstruction.item() == pytest.approx(-bound.reconstruction.mean().item(), abs=1e-2)
    kl = (bound.what + bound.where + bound.whether).mean().item()
    assert loss.kl.item() == pytest.approx(kl, abs=1e-2)
    warm = loss_of(model, images, noise, temperature=torch.tensor(1.0))
    off = abs(warm.reconstruction.item() + bound.reconstruction.mean().item()) + abs(warm.kl.item() - kl)
    assert off > 2e-2  # and a warm one is not


def test_parsed_images_are_decoded_from_their_parses_canvas() -> None:
    model = tiny(6, 6, 2, 3)
    images, noise = random_images(model, 4), torch.rand(4, 9, 13)
    parses = model.parse(images)
    with torch.no_grad():
        hard = model.grid.join(last_cells(parses, model.bank.parts, 9))
        want = model.likelihood(hard).log_prob(images)
        own = [-loss_of(model, images[i : i + 1], noise[i : i + 1]).reconstruction for i in range(4)]
    every = loss_of(model, images, noise, parsed=torch.ones(4, dtype=torch.bool))
    assert every.reconstruction.item() == pytest.approx(-want.mean().item(), rel=1e-4)
    some = loss_of(model, images, noise, parsed=torch.tensor([True, False, True, False]))
    mixed = -(want[0] + own[1] + want[2] + own[3]) / 4
    assert some.reconstruction.item() == pytest.approx(mixed.item(), rel=1e-4)
    assert every.kl.item() == pytest.approx(loss_of(model, images, noise).kl.item(), rel=1e-5)


def test_without_repeats_from_end_to_end() -> None:
    model = tiny(6, 6, 2, 3, prior={"no_repeat": True})
    with torch.no_grad():
        model.get_parameter("posterior.whether.2.bias").fill_(9.0)
    images = random_images(model, 8)
    for drawing in (model.encode(images), model.encode(images, seed=3), model.sample(8).drawing):
        masks = place_masks(drawing, 9)
        assert drawing.whether.any() and not (masks & used_places(masks)).any()
    bound, figure = model.elbo(images), model.log_likelihood(images, 20)
    assert bound.elbo.isfinite().all() and figure.isfinite().all()
    assert all((x >= -1e-4).all() for x in (bound.what, bound.where, bound.whether))
    loss = loss_of(model.train(), images, torch.rand(8, 9, 13))
    loss.total.backward()
    assert loss.kl < 1000  # no forbidden place costs ten thousand nats


# --- a trained toy model ---------------------------------------------------------------------


def bars(n: int, seed: int) -> Tensor:
    """6 x 6 binary images with bars through rows and columns 1 and 4, each there or not, some pixels flipped."""
    g = torch.Generator().manual_seed(seed)
    rows, columns = torch.rand(2, n, 2, generator=g) < 0.5
    images = torch.zeros(n, 1, 6, 6)
    images[:, 0, 1::3] = rows[:, :, None].float()
    images[:, 0, :, 1::3] = torch.maximum(images[:, 0, :, 1::3], columns[:, None].float())
    return (images - (torch.rand(images.shape, generator=g) < 0.04).float()).abs()


def bar_parts() -> Tensor:
    """The three things a quarter of such an image can hold: a bar across, a bar down, a cross."""
    parts = torch.zeros(3, 1, 3, 3)
    parts[0, 0, 1] = parts[2, 0, 1] = 1
    parts[1, 0, :, 1] = parts[2, 0, :, 1] = 1
    return parts


class Trained:
    """A toy model after both stages, and the figures of its posterior before the second."""

    def __init__(self) -> None:
        self.images, self.held_out = bars(300, 0), bars(40, 1)
        bank = PartBank(bar_parts())
        sections: dict[str, Any] = {"model_stage": {"regulariser": 2.0}, "posterior": {"width": 16, "heads": "global"}}
        fresh = tiny(6, 6, 3, 3, decoder={"width": 16}, **sections)
        torch.manual_seed(2)
        self.model = model = NPDraw(fresh.config, bank)
        parses = model.parse(self.images)
        optimiser = torch.optim.Adam(model.prior.parameters(), 1e-2)
        for _ in range(150):
            index = torch.randint(len(self.images), (64,))
            optimiser.zero_grad()
            (-model.prior.log_prob(parses[index]).mean()).backward()
            optimiser.step()
        model.prior.requires_grad_(False)
        self.before = self.figures()
        model.train()
        optimiser = torch.optim.Adam([p for p in model.parameters() if p.requires_grad], 5e-3)
        for step in range(300):
            index = torch.randint(len(self.images), (64,))
            noise, heat = model.posterior.noise(64), torch.tensor(max(0.5, math.exp(-0.01 * step)))
            optimiser.zero_grad()
            parsed = torch.zeros(64, dtype=torch.bool)
            model.training_loss(self.images[index], parses[index], noise, heat, parsed, 1.0).total.backward()
            optimiser.step()
        self.after = self.figures()

    def figures(self) -> tuple[float, float]:
        """ELBO on held-out images, and how often the most likely drawing has the parse's whether and what."""
        self.model.eval()
        encoded, parsed = self.model.encode(self.held_out), self.model.parse(self.held_out)
        agree = (encoded.what == parsed.what) & (encoded.whether == parsed.whether)
        return self.model.elbo(self.held_out).elbo.mean().item(), agree.float().mean().item()


@pytest.fixture(scope="module")
def trained() -> Trained:
    torch.set_num_threads(1)
    return Trained()


def test_the_posterior_is_used(trained: Trained) -> None:
    """On held-out images: its bound and its agreement with the parse, before and after training."""
    assert trained.after[0] > trained.before[0] + 5
    assert trained.after[1] > 0.85 and trained.after[1] > trained.before[1] + 0.2


def test_elbo_is_below_iwae_which_rises_to_the_exact_likelihood(trained: Trained) -> None:
    model, images = trained.model, trained.held_out
    repeats = {1: 40, 5: 20, 50: 4}  # as many weights of each, so that the means are sure
    weighted = {
        k: torch.stack([model.log_likelihood(images, samples=k, seed=100_000 * s) for s in range(n)])
        for k, n in repeats.items()
    }
    bound = torch.stack([model.elbo(images, seed=1000 * s).elbo for s in range(20)]).double().mean().item()
    one, five, fifty = (weighted[k].mean().item() for k in repeats)
    assert bound < fifty and one + 0.05 < five and five + 0.02 < fifty
    error = weighted[1].std().item() / math.sqrt(weighted[1].numel())
    assert bound == pytest.approx(one, abs=5 * error + 0.1)  # one weight is the bound by Monte Carlo
    want = exact(model, images[:10])
    assert (model.log_likelihood(images[:10], samples=2000) - want).abs().max() < 0.3
    assert (weighted[50][:, :10].mean(0) < want + 0.3).all()


def test_the_trained_model_draws_what_it_has_seen(trained: Trained) -> None:
    """Samples are closer to the nearest training image than noise of the same density is; reconstructions are close."""
    pictures = trained.model.sample(32).images
    assert pictures.isfinite().all()

    def distance(x: Tensor) -> float:
        return torch.cdist(x.flatten(1), trained.images.flatten(1)).amin(1).mean().item()

    noise = (torch.rand(pictures.shape, generator=torch.Generator().manual_seed(0)) < pictures.mean()).float()
    assert distance((pictures > 0.5).float()) < 0.7 * distance(noise)
    error = (trained.model.reconstruct(trained.held_out) - trained.held_out).abs().mean().item()
    assert error < 0.5 * (trained.held_out - trained.held_out.mean()).abs().mean().item()
