"""`Decoder`: sizes, the shortcut, residual blocks, and that image and canvas lie on each other."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from npdraw.config import DecoderConfig
from npdraw.decoder import Decoder, Residual


@pytest.mark.parametrize("upsampling", ["transposed", "nearest"])
@pytest.mark.parametrize("shortcut", [False, True])
@pytest.mark.parametrize("middle", ["plain", "residual"])
@pytest.mark.parametrize(
    ("canvas", "size"),
    [
        ((28, 28), (28, 28)),
        ((32, 32), (64, 64)),
        ((5, 7), (5, 7)),
        ((5, 7), (10, 14)),
        ((1, 1), (1, 1)),
        ((8, 6), (32, 24)),
        ((12, 12), (18, 18)),
        ((16, 8), (33, 17)),
    ],
)
def test_shapes(canvas: tuple[int, int], size: tuple[int, int], middle: str, shortcut: bool, upsampling: str) -> None:
    decoder = Decoder(3, canvas, size, 5, DecoderConfig(4, middle, shortcut, upsampling))
    out = decoder(torch.rand(2, 3, *canvas))
    assert out.shape == (2, 5, *size) and out.dtype == torch.float32
    doubling = nn.Upsample if upsampling == "nearest" else nn.ConvTranspose2d
    doubled = sum(isinstance(m, doubling) for m in decoder.modules())
    extra = max(-(-s // c) for s, c in zip(size, canvas, strict=True)) - 1
    assert doubled == 2 + extra.bit_length()
    assert sum(isinstance(m, Residual) for m in decoder.modules()) == (2 if middle == "residual" else 0)
    out.sum().backward()
    assert all(p.grad is not None for p in decoder.parameters())


def averaging(canvas: int, size: int, upsampling: str) -> Callable[[Tensor], Tensor]:
    """A decoder whose convolutions all average: its output is the canvas, blurred and brought to the image's size."""
    decoder = Decoder(1, (canvas, canvas), (size, size), 1, DecoderConfig(1, upsampling=upsampling)).eval()
    with torch.no_grad():
        for module in decoder.modules():
            if isinstance(module, nn.Conv2d | nn.ConvTranspose2d):
                module.weight.fill_(1 / module.weight.numel())
    return decoder


@pytest.mark.parametrize("upsampling", ["transposed", "nearest"])
@pytest.mark.parametrize("size", [32, 64, 128, 48, 65, 100, 40])
def test_a_pixel_sees_the_canvas_at_its_own_place(size: int, upsampling: str) -> None:
    """Centre of gravity of what the middle pixel sees of a canvas of 32: the canvas's middle, for every image size."""
    decoder = averaging(32, size, upsampling)
    for target in (0.5, 0.7):
        canvas = torch.full((1, 1, 32, 32), 0.5, requires_grad=True)
        pixel = int(size * target)
        decoder(canvas)[0, 0, pixel, pixel].backward()
        assert canvas.grad is not None
        seen = canvas.grad[0, 0].sum(0)
        centre = float((seen * (torch.arange(32) + 0.5)).sum() / seen.sum())
        assert centre == pytest.approx(32 * (pixel + 0.5) / size, abs=2.5)


@pytest.mark.parametrize("size", [96, 192])
def test_nearest_leaves_no_checkerboard(size: int) -> None:
    """An untrained decoder makes an even picture of an even canvas, away from the edges; a transposed convolution gives
    it a pattern."""
    spreads = []
    for upsampling in ("transposed", "nearest"):
        torch.manual_seed(0)
        decoder = Decoder(3, (96, 96), (size, size), 2, DecoderConfig(8, "residual", True, upsampling)).eval()
        out = decoder(torch.full((1, 3, 96, 96), 0.7)).detach()
        middle = slice(size // 2 - 2, size // 2 + 2)
        spreads.append(float(out[..., middle, middle].std((2, 3)).max()))
    assert spreads[0] > 1e-5 and spreads[1] < 1e-6


@pytest.mark.parametrize("size", [8, 16, 12])
def test_the_shortcut_shows_the_canvas(size: int) -> None:
    """With the body silenced the last layer sees the canvas alone, enlarged where the image is larger."""
    torch.manual_seed(0)
    decoder = Decoder(1, (8, 8), (size, size), 1, DecoderConfig(4, shortcut=True)).eval()
    assert decoder.out.weight.shape[1] == 5
    with torch.no_grad():
        decoder.out.weight.zero_()
        decoder.out.bias.zero_()  # type: ignore[union-attr]
        decoder.out.weight[0, 4, 1, 1] = 1
    canvas = torch.rand(2, 1, 8, 8)
    out = decoder(canvas)
    index = (torch.arange(size) * 8 // size).clamp_max(7)
    assert torch.equal(out, canvas[:, :, index][..., index])


def test_batches_do_not_mix_in_evaluation_mode() -> None:
    """Trap 8: scores use running statistics."""
    decoder = Decoder(1, (8, 8), (8, 8), 1, DecoderConfig(4))
    canvas = torch.rand(5, 1, 8, 8)
    mixed = decoder(canvas)[:1]
    assert not torch.allclose(mixed, decoder(canvas[:2])[:1])
    decoder.eval()
    assert torch.allclose(decoder(canvas)[:1], decoder(canvas[:1]), atol=1e-6)
