"""`PartBank`: real patches, k-medoids against brute force, CLARA, blank patches, and what is refused."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from torch import Tensor

import reference
from npdraw import bank as banks
from npdraw import store
from npdraw.bank import PartBank, k_medoids, nearest, sample_patches
from npdraw.errors import InputError


def strokes(n: int = 30, size: int = 12, channels: int = 1, seed: int = 0) -> Tensor:
    """Black uint8 images with a few bright bars, mostly empty: (n,C,size,size)."""
    g = torch.Generator().manual_seed(seed)
    images = torch.zeros(n, channels, size, size, dtype=torch.uint8)
    for i in range(n):
        row, column = torch.randint(0, size, (2,), generator=g).tolist()
        images[i, :, row, : size // 2] = torch.randint(40, 256, (channels, size // 2), generator=g, dtype=torch.uint8)
        images[i, :, size // 2 :, column] = torch.randint(40, 256, (channels, 1), generator=g, dtype=torch.uint8)
    return images


def patches_of(images: Tensor, k: int) -> Tensor:
    """Every k x k patch of every image, float: (P,C*k*k)."""
    x = images.float() / 255 if images.dtype == torch.uint8 else images
    return x.unfold(2, k, 1).unfold(3, k, 1).permute(0, 2, 3, 1, 4, 5).reshape(-1, images.shape[1] * k * k)


@contextmanager
def seconds(limit: float) -> Iterator[None]:
    """Fail, and do not hang, when the block takes longer."""

    def stop(*_: object) -> None:
        pytest.fail(f"still running after {limit} seconds")

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, limit)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


# --- what a bank is made of ------------------------------------------------------------------


@pytest.mark.parametrize(("channels", "k"), [(1, 3), (3, 2), (1, 12), (3, 5)])
def test_parts_are_real_patches_that_differ_and_are_not_blank(channels: int, k: int) -> None:
    images = strokes(channels=channels)
    bank = PartBank.build(images, k, 6, patches=400)
    assert bank.parts.shape == (6, channels, k, k) and bank.parts.dtype == torch.float32
    real = patches_of(images, k)
    for part in bank.parts.flatten(1):
        assert (real == part).all(1).any()
        assert part.max() >= banks.BLANK
    assert len(bank.parts.flatten(1).unique(dim=0)) == len(bank) == 6
    brightness = bank.parts.flatten(1).sum(1)
    assert torch.equal(brightness, brightness.sort().values)
    assert not list(bank.parameters()) and list(bank.state_dict()) == ["parts"]


def test_one_seed_one_bank_and_another_seed_another() -> None:
    images = strokes()
    first = PartBank.build(images, 3, 8, patches=200, seed=5).parts
    torch.manual_seed(99)  # torch's own generator has no say
    assert torch.equal(first, PartBank.build(images, 3, 8, patches=200, seed=5).parts)
    assert not torch.equal(first, PartBank.build(images, 3, 8, patches=200, seed=6).parts)


def test_building_leaves_the_global_generator_alone() -> None:
    torch.manual_seed(1)
    want = torch.rand(3)
    torch.manual_seed(1)
    PartBank.build(strokes(), 3, 4, patches=100)
    assert torch.equal(torch.rand(3), want)


def test_bytes_and_floats_give_the_same_bank() -> None:
    images = strokes()
    a, b = PartBank.build(images, 3, 5, patches=300), PartBank.build(images.float() / 255, 3, 5, patches=300)
    assert torch.equal(a.parts, b.parts)


def test_patches_lie_inside_the_image_and_reach_every_place() -> None:
    """Every pixel has a value of its own, so a patch tells where it came from."""
    n, c, h, w, k = 2, 3, 6, 7, 3
    images = torch.arange(1, n * c * h * w + 1).reshape(n, c, h, w).float() / (n * c * h * w) * 0.8 + 0.2
    real = {tuple(p) for p in patches_of(images, k).tolist()}
    found = {tuple(p) for p in sample_patches(images, k, 2000, 0).tolist()}
    assert found == real


def test_no_blank_patch_on_a_nearly_empty_set() -> None:
    images = torch.zeros(50, 1, 28, 28)
    images[7, 0, 13, 14] = 1
    found = sample_patches(images, 3, 3000, 0)
    assert len(found) and (found.amax(1) >= banks.BLANK).all()
    assert len(PartBank.build(images, 3, 2, patches=3000)) == 2


def test_faint_patches_are_blank_by_their_brightest_pixel() -> None:
    images = torch.full((4, 1, 6, 6), banks.BLANK / 2)
    images[0, 0, 2, 2] = banks.BLANK * 1.01
    assert (sample_patches(images, 2, 2000, 0).amax(1) > banks.BLANK).all()


# --- k-medoids -------------------------------------------------------------------------------


def test_k_medoids_against_every_choice() -> None:
    """Never below the optimum, no single exchange improves it, and on tiny sets it mostly is the optimum."""
    optimal = 0
    for seed in range(20):
        points = torch.rand(9, 3, generator=torch.Generator().manual_seed(seed))
        k = 1 + seed % 4
        medoids = k_medoids(points, k, seed).tolist()
        assert len(set(medoids)) == k
        cost, least = reference.medoid_cost(points.numpy(), medoids), reference.best_medoid_cost(points.numpy(), k)
        assert cost >= least - 1e-9
        for out in range(k):
            for new in set(range(9)) - set(medoids):
                swapped = [*medoids[:out], *medoids[out + 1 :], new]
                assert reference.medoid_cost(points.numpy(), swapped) >= cost - 1e-5
        optimal += cost < least + 1e-5
    assert optimal >= 15


def test_all_points_can_be_medoids() -> None:
    points = torch.rand(6, 4)
    assert sorted(k_medoids(points, 6, 0).tolist()) == list(range(6))


@pytest.mark.parametrize("exact", [10_000, 40])
def test_equal_patches_never_give_equal_parts(monkeypatch: pytest.MonkeyPatch, exact: int) -> None:
    """Twelve different patches, most of them many times: as many parts as patches, and fewer."""
    monkeypatch.setattr(banks, "EXACT", exact)
    monkeypatch.setattr(banks, "SAMPLE_SIZE", 60)
    different = torch.rand(12, 5, generator=torch.Generator().manual_seed(0))
    points = different[torch.arange(240) % 12]
    for seed in range(10):
        for k in (1, 5, 11, 12):
            chosen = points[k_medoids(points, k, seed)]
            assert len(chosen.unique(dim=0)) == k
    with pytest.raises(InputError, match="12 different"):
        k_medoids(points, 13, 0)


def test_clara_counts_the_patches_of_the_set_not_of_a_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three different patches, one of them once: three parts can be had, whatever a sample happens to miss."""
    monkeypatch.setattr(banks, "EXACT", 50)
    monkeypatch.setattr(banks, "SAMPLE_SIZE", 40)
    points = torch.tensor([[1.0, 0.0], [0.0, 1.0]])[torch.arange(400) % 2]
    points[123] = torch.tensor([1.0, 1.0])
    for seed in range(5):
        chosen = points[k_medoids(points, 3, seed)]
        assert len(chosen.unique(dim=0)) == 3


@pytest.mark.parametrize(("size", "value", "step"), [(25, 0.5, 1e-5), (768, 250 / 255, 1 / 255)])
def test_patches_that_hardly_differ_end(size: int, value: float, step: float) -> None:
    """Different patches whose distance vanishes in float32 must not be searched for without end.

    The second kind is bytes: bright 16 x 16 colour patches that differ in one level of one pixel.
    """
    different = torch.full((4, size), value)
    different[[1, 2, 3], [1, 2, 3]] -= step
    points = different[torch.arange(400) % 4]
    with seconds(5):
        chosen = points[k_medoids(points, 4, 0)]
    assert len(chosen.unique(dim=0)) == 4


def test_clara_is_never_worse_than_chance_and_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """More patches than EXACT: the clustered samples stay small, and all patches judge."""
    monkeypatch.setattr(banks, "EXACT", 200)
    monkeypatch.setattr(banks, "SAMPLE_SIZE", 60)
    clustered: list[int] = []
    inner = banks._faster_pam

    def watched(points: Tensor, k: int, seed: int) -> Tensor:
        clustered.append(len(points))
        return inner(points, k, seed)

    monkeypatch.setattr(banks, "_faster_pam", watched)
    for seed in range(4):
        g = torch.Generator().manual_seed(seed)
        centres = torch.rand(6, 8, generator=g)
        points = centres[torch.randint(6, (1500,), generator=g)] + 0.05 * torch.randn(1500, 8, generator=g)
        cost = float(nearest(points, points[k_medoids(points, 6, seed)])[1].sum())
        chance = [float(nearest(points, points[torch.randperm(1500, generator=g)[:6]])[1].sum()) for _ in range(30)]
        assert cost <= min(chance)
        monkeypatch.setattr(banks, "SAMPLES", 1)
        alone = float(nearest(points, points[k_medoids(points, 6, seed)])[1].sum())
        monkeypatch.setattr(banks, "SAMPLES", 5)
        assert cost <= alone * (1 + 1e-6)
    assert max(clustered) <= 60


def test_more_than_ten_thousand_patches() -> None:
    images = strokes(60, 20)
    bank = PartBank.build(images, 4, 5, patches=banks.EXACT + 500)
    points = sample_patches(images, 4, banks.EXACT + 500, 0)
    g = torch.Generator().manual_seed(3)
    chance = [nearest(points, points[torch.randperm(len(points), generator=g)[:5]])[1].sum() for _ in range(10)]
    assert nearest(points, bank.parts.flatten(1))[1].sum() <= min(chance)


@pytest.mark.parametrize(("d", "m"), [(25, 7), (25, 50), (48, 33), (75, 10)])
def test_nearest_takes_the_lowest_of_equal_parts(d: int, m: int) -> None:
    """Every part stands twice; only the first of each pair may be named. Chunks change nothing."""
    g = torch.Generator().manual_seed(d)
    parts, points = torch.rand(m, d, generator=g), torch.rand(1000, d, generator=g)
    index, squared = nearest(points, torch.cat([parts, parts]), chunk=64)
    assert index.max() < m
    exact = torch.cdist(points.double(), parts.double()) ** 2
    assert torch.allclose(squared.double(), exact.amin(1), atol=1e-5)
    assert torch.allclose(exact.gather(1, index[:, None])[:, 0], exact.amin(1), atol=1e-5)
    again = nearest(points, parts)
    assert torch.allclose(again[1], squared)
    empty = nearest(points[:0], parts)
    assert empty[0].shape == empty[1].shape == (0,)


# --- what is refused -------------------------------------------------------------------------


def refuse(images: Tensor, part_size: int = 2, parts: int = 2, patches: int = 50, match: str | None = None) -> None:
    with pytest.raises(InputError, match=match) as caught:
        PartBank.build(images, part_size, parts, patches)
    assert "\n" not in str(caught.value)


def test_what_cannot_be_built() -> None:
    images = strokes(5)
    refuse(torch.zeros(5, 1, 8, 8), match="blank")
    refuse(images, part_size=13, match="fit")
    refuse(images, part_size=0)
    refuse(images, parts=0, match="part")
    refuse(images, parts=-1)
    refuse(torch.ones(3, 1, 8, 8), parts=2, match="only 1 different")


def test_fewer_patches_than_parts() -> None:
    refuse(strokes(5), parts=20, patches=10)


@pytest.mark.parametrize("shape", [(5, 8, 8), (0, 1, 8, 8), (8, 8)])
def test_images_of_another_shape(shape: tuple[int, ...]) -> None:
    refuse(torch.rand(shape))


@pytest.mark.parametrize("patches", [0, -1])
def test_no_patches(patches: int) -> None:
    refuse(strokes(5), patches=patches, match="patch")


@pytest.mark.parametrize("shape", [(3, 1, 4, 5), (3, 4, 4), (0, 1, 4, 4), (2, 0, 4, 4)])
def test_parts_of_another_shape(shape: tuple[int, ...]) -> None:
    with pytest.raises(InputError):
        PartBank(torch.zeros(shape))


# --- keeping and showing it ------------------------------------------------------------------


def test_a_bank_owns_its_parts() -> None:
    parts = torch.rand(2, 1, 3, 3)
    bank, before = PartBank(parts), parts.clone()
    parts.zero_()
    assert torch.equal(bank.parts, before)
    assert (len(bank), bank.part_size, bank.channels) == (2, 3, 1)


def test_save_and_load_are_bit_exact(tmp_path: Path) -> None:
    bank = PartBank.build(strokes(channels=3), 3, 5, patches=100)
    store.save_bank(bank, tmp_path / "deep" / "bank.safetensors")
    assert torch.equal(store.load_bank(tmp_path / "deep" / "bank.safetensors").parts, bank.parts)
    assert [p.name for p in (tmp_path / "deep").iterdir()] == ["bank.safetensors"]


@pytest.mark.parametrize("channels", [1, 3])
def test_it_shows_itself(channels: int) -> None:
    html = PartBank(torch.rand(5, channels, 3, 3))._repr_html_()
    assert "5 parts of 3 x 3" in html and "data:image/png;base64," in html


@pytest.mark.parametrize("low", [-1.0, 0.0])
def test_pixels_outside_of_the_unit_range_are_refused(low: float, tmp_path: Path) -> None:
    """In [-1, 1] the maximum of Eq. 3 would erase the dark half; floats up to 255 are bytes in disguise (trap 12)."""
    images = torch.rand(4, 1, 6, 6) * (2 if low else 255) + low
    with pytest.raises(InputError, match=r"\[0, 1\]"):
        PartBank.build(images, 2, 3, 50)
    store.save_bank(PartBank(images[:, :, :2, :2]), tmp_path / "bank.safetensors")
    with pytest.raises(InputError, match=r"\[0, 1\]"):
        store.load_bank(tmp_path / "bank.safetensors")
