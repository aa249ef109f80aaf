"""The plain VAE: its bound against an independent reading, what it learns and from what, its seeds, how it is kept."""

import math
from pathlib import Path
from statistics import NormalDist

import pytest
import torch
from torch import Tensor

import reference
from npdraw.baselines import vae
from npdraw.baselines.vae import LATENT, VAE, Loss, load_vae, train_vae
from npdraw.data import Subset
from npdraw.errors import InputError, TrainingError
from npdraw.noise import Stream
from npdraw.progress import Progress
from npdraw.training import loop
from training import tiny

QUIET = Progress(quiet=True)


@pytest.fixture
def few_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vae, "MOST_STEPS", 4)


def untrained(shape: tuple[int, int, int] = (1, 6, 5), likelihood: str = "bernoulli", seed: int = 0) -> VAE:
    torch.manual_seed(seed)
    return VAE(torch.Size(shape), likelihood, 3).eval()  # type: ignore[arg-type]


def some(count: int, shape: tuple[int, int, int] = (1, 6, 5)) -> Tensor:
    return torch.rand(count, *shape, generator=torch.Generator().manual_seed(1)).round()


def train(images: Tensor, ink: bool = False, seed: int = 0) -> VAE:
    return train_vae(Subset(images), "bernoulli", 10, ink, "cpu", QUIET, seed)


# --- the bound ---


def test_reconstruction_and_kl_are_those_of_a_plain_reading() -> None:
    """The latent by the hash and the standard library's normal quantiles; likelihood and KL in plain loops."""
    model, images, seed = untrained(), some(3), 11
    found = model.elbo(images, seed)
    posterior = model.encoder(images).tolist()
    for i, numbers in enumerate(posterior):
        mean, log_variance = numbers[:LATENT], numbers[LATENT:]
        draws = [NormalDist().inv_cdf(reference.splitmix_uniform(seed + i, j + 1, 22)) for j in range(LATENT)]
        latent = [m + math.exp(v / 2) * e for m, v, e in zip(mean, log_variance, draws)]
        logits = model.decoder(torch.tensor([latent]))[0, :, :6, :5]
        assert float(found.reconstruction[i]) == pytest.approx(
            reference.bernoulli_log_prob(logits.detach().numpy(), images[i].numpy()), rel=1e-4
        )
        kl = sum((m * m + math.exp(v) - 1 - v) / 2 for m, v in zip(mean, log_variance))
        assert float(found.kl[i]) == pytest.approx(kl, rel=1e-4)
        assert float(found.elbo[i]) == pytest.approx(float(found.reconstruction[i]) - kl, rel=1e-4)


def test_the_closed_kl_is_the_mean_of_log_q_minus_log_p() -> None:
    model, images = untrained(), some(2)
    mean, log_variance = model.encoder(images).double().chunk(2, dim=1)
    q, p = torch.distributions.Normal(mean, (log_variance / 2).exp()), torch.distributions.Normal(0.0, 1.0)
    torch.manual_seed(0)
    z = q.sample((20_000,))
    terms = (q.log_prob(z) - p.log_prob(z)).sum(2)  # (samples,B)
    error = terms.std(0) / math.sqrt(len(terms))
    assert ((model.elbo(images).kl - terms.mean(0)).abs() < 4 * error).all()


def test_the_bound_is_below_the_likelihood() -> None:
    model, image = untrained(), some(1)
    bound = torch.stack([model.elbo(image, seed).elbo for seed in range(300)]).mean()
    torch.manual_seed(0)
    logits = model.decoder(torch.randn(20_000, LATENT))[:, :, :6, :5]
    pixels = -torch.nn.functional.binary_cross_entropy_with_logits(
        logits, image.expand(20_000, -1, -1, -1), reduction="none"
    )
    exact = pixels.flatten(1).sum(1).double().logsumexp(0) - math.log(20_000)
    assert bound < exact


def test_the_training_loss_is_minus_the_bound() -> None:
    model, images = untrained(), some(64)
    torch.manual_seed(0)
    losses = [model(images) for _ in range(20)]
    bounds = torch.stack([model.elbo(images, 1000 * i).elbo.mean() for i in range(20)])
    totals = torch.stack([x.total for x in losses]).detach()
    error = float((totals.std() + bounds.std()) / math.sqrt(20))
    assert float(totals.mean()) == pytest.approx(-float(bounds.mean()), abs=4 * error)
    one = losses[0]
    assert float(one.total.detach()) == pytest.approx(float((one.reconstruction + one.kl).detach()), rel=1e-5)


# --- shapes and seeds ---


@pytest.mark.parametrize("likelihood", ["bernoulli", "mixture"])
@pytest.mark.parametrize("shape", [(1, 4, 4), (3, 7, 10), (1, 33, 16), (3, 5, 40)])
def test_any_size_grey_or_colour(shape: tuple[int, int, int], likelihood: str) -> None:
    model, images = untrained(shape, likelihood), some(3, shape)
    latent = model.encode(images)
    assert latent.shape == (3, LATENT)
    assert model.decode(latent).shape == images.shape == model.sample(3).shape
    assert model.elbo(images).elbo.shape == (3,) and model.elbo(images).elbo.isfinite().all()
    assert float(model.sample(2).min()) >= 0 and float(model.sample(2).max()) <= 1
    bytes_ = (images * 255).to(torch.uint8)
    assert torch.equal(model.encode(bytes_), latent)
    empty = images[:0]
    assert model.encode(empty).shape == (0, LATENT) and model.decode(latent[:0]).shape == empty.shape
    assert model.elbo(empty).elbo.shape == (0,)


def test_it_is_small() -> None:
    counts = [sum(p.numel() for p in VAE(torch.Size(s), n).parameters()) for s, n in (
        ((1, 28, 28), "bernoulli"), ((3, 32, 32), "mixture"), ((3, 64, 64), "mixture"))]  # fmt: skip
    assert all(100_000 < n < 500_000 for n in counts)


def test_a_seed_is_one_picture_in_any_company() -> None:
    model = untrained()
    plural = model.sample(100, 5)
    assert torch.equal(plural[70:71], model.sample(1, 75))
    assert torch.equal(plural[[3, 1]], model.sample(2, [8, 6]))
    assert not torch.equal(plural[0], plural[1])
    with pytest.raises(InputError, match="3 latents need as many seeds, not 2"):
        model.sample(3, [1, 2])


def test_latents_of_the_prior_are_standard_normal_and_of_the_posterior_as_it_says() -> None:
    z = vae.latents(0, 4000, Stream.VAE_PRIOR, torch.device("cpu"))
    assert z.mean(0).abs().max() < 0.08 and (z.std(0) - 1).abs().max() < 0.06
    assert abs(float((z.abs() < 1).float().mean()) - 0.6827) < 0.01
    model, image = untrained(), some(1)
    draws = model.encode(image.expand(4000, -1, -1, -1), seed=0)
    mean, log_variance = model.encoder(image).detach().chunk(2, dim=1)
    spread = (log_variance / 2).exp()
    assert ((draws.mean(0) - mean).abs() < 0.08 * spread).all()
    assert ((draws.std(0) / spread - 1).abs() < 0.06).all()
    assert torch.allclose(model.encode(image), mean)


def test_other_shapes_are_refused() -> None:
    with pytest.raises(InputError, match=r"takes images of the shape \(1, 6, 5\), not \(1, 5, 6\)"):
        untrained().encode(torch.zeros(2, 1, 5, 6))


# --- training ---


def test_it_learns_more_than_the_mean_image(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vae, "LEAST_STEPS", 300)
    monkeypatch.setattr(vae, "EPOCHS", 1)
    images = tiny.strokes(400)
    model = train(images[:300])
    test = images[300:].float() / 255
    found = model.elbo(test)
    level = (images[:300].float() / 255).mean(0).clamp(1e-3, 1 - 1e-3)
    mean_image = (test * level.log() + (1 - test) * (1 - level).log()).flatten(1).sum(1)
    assert float(found.elbo.mean()) > float(mean_image.mean()) + 5
    assert float(found.kl.mean()) > 1, "the latent is used"


def test_it_is_trained_by_the_loop_that_trains_the_model(
    few_steps: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    asked = []
    fit = loop.fit

    def watched(fabric: object, run: object, stage: loop.Stage, count: int, progress: Progress) -> None:
        asked.append((stage.name, stage.epochs * (count // stage.batch), count))
        fit(fabric, run, stage, count, progress)  # type: ignore[arg-type]

    monkeypatch.setattr(loop, "fit", watched)
    train(tiny.strokes(100))
    train(tiny.strokes(2))
    assert asked == [("vae", 4, 100), ("vae", 4, 2)]
    assert not list(tmp_path.iterdir()), "it leaves nothing behind"


def test_steps_and_batches_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []

    def forward(model: VAE, images: Tensor) -> Loss:
        seen.append(len(images))
        return Loss(*(p.sum() * 0 for p in list(model.parameters())[:3]))

    monkeypatch.setattr(VAE, "forward", forward)
    monkeypatch.setattr(vae, "_seconds_of_a_step", lambda *given: 1.0)
    for images, least, most, steps, batch in (
        (tiny.strokes(200), 7, 9, 9, 64),  # 20 epochs of 3 steps are too many
        (tiny.strokes(70), 25, 99, 25, 64),  # 20 epochs of one are too few
        (tiny.strokes(200), 1, 2, 2, 64),  # not even one epoch
        (tiny.strokes(30, side=40, channels=3), 1, 99, 60, 10),  # 4,800 numbers an image
        (tiny.strokes(30, side=90, channels=3), 1, 9, 9, 8),
    ):
        monkeypatch.setattr(vae, "LEAST_STEPS", least)
        monkeypatch.setattr(vae, "MOST_STEPS", most)
        seen.clear()
        train(images)
        assert seen == [batch] * steps


@pytest.mark.parametrize("ink", [False, True])
def test_ink_is_drawn_anew_in_every_step(ink: bool, few_steps: None, monkeypatch: pytest.MonkeyPatch) -> None:
    batches: list[Tensor] = []
    bound = VAE._bound

    def watched(model: VAE, images: Tensor, noise: Tensor) -> vae.Elbo:
        batches.append(images)
        return bound(model, images, noise)

    monkeypatch.setattr(VAE, "_bound", watched)
    monkeypatch.setattr(vae, "_seconds_of_a_step", lambda *given: 1.0)
    images = torch.full((2, 1, 8, 8), 128, dtype=torch.uint8)
    train(images, ink)
    drawn = torch.cat(batches)
    assert len(batches) == 4 and bool(((drawn == 0) | (drawn == 1)).all()) == ink
    assert torch.equal(batches[0], batches[1]) != ink


def test_the_same_seed_gives_the_same_and_leaves_the_generator_of_others_alone(few_steps: None) -> None:
    torch.manual_seed(3)
    state = torch.get_rng_state()
    first = train(tiny.strokes(40))
    assert torch.equal(state, torch.get_rng_state())
    torch.rand(5)
    again, other = train(tiny.strokes(40)), train(tiny.strokes(40), seed=1)
    assert first.digest == again.digest != other.digest
    assert not any(p.requires_grad for p in first.parameters())


def test_a_loss_that_is_not_finite_is_one_sentence(monkeypatch: pytest.MonkeyPatch, few_steps: None) -> None:
    monkeypatch.setattr(vae, "RATE", 1e30)
    with pytest.raises(
        TrainingError, match=r"a VAE of these images cannot be trained: .* leave editing out of --metrics"
    ):
        train(tiny.strokes(40))


# --- how it is kept ---


def load(images: Tensor, folder: Path, likelihood: str = "bernoulli", mixtures: int = 10, ink: bool = False) -> VAE:
    return load_vae(Subset(images), likelihood, mixtures, ink, folder, "cpu", QUIET)  # type: ignore[arg-type]


@pytest.fixture
def trainings(few_steps: None, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """One entry a training."""
    count: list[int] = []

    def counted(*given: object) -> VAE:
        count.append(1)
        return train_vae(*given)  # type: ignore[arg-type]

    monkeypatch.setattr(vae, "train_vae", counted)
    return count


def test_it_is_trained_once_and_again_for_other_images_likelihoods_or_ink(trainings: list[int], tmp_path: Path) -> None:
    images = tiny.strokes(40)
    first = load(images, tmp_path / "kept")
    again = load(images.clone(), tmp_path / "kept")
    assert len(trainings) == 1 and first.digest == again.digest
    assert torch.equal(first.sample(3), again.sample(3))
    changed = images.clone()
    changed[-1, 0, 0, 0] ^= 1
    load(changed, tmp_path / "kept")
    load(images, tmp_path / "kept", ink=True)
    load(images, tmp_path / "kept", "mixture")
    load(images, tmp_path / "kept", "mixture", 3)
    assert len(trainings) == 5 == len(list((tmp_path / "kept").glob("vae-*.safetensors")))


def test_a_damaged_file_is_made_again(trainings: list[int], tmp_path: Path) -> None:
    first = load(tiny.strokes(40), tmp_path)
    (path,) = tmp_path.glob("vae-*.safetensors")
    whole = path.read_bytes()
    for damaged in (whole[:1000], whole[:-1] + bytes([whole[-1] ^ 1]), b""):
        path.write_bytes(damaged)
        assert load(tiny.strokes(40), tmp_path).digest == first.digest
        assert path.read_bytes() == whole
    assert len(trainings) == 4


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match=r"cannot store a VAE in .*; check the free space .* or choose another folder"):
        load(tiny.strokes(40), tmp_path / "file")
