"""Pictures are checked by their pixels, files by reading them back."""

import base64
import io
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image, ImageSequence

from npdraw import plots, show
from npdraw.canvas import Grid, render_steps
from npdraw.drawing import Drawing
from npdraw.errors import InputError


def pixels(image: Image.Image) -> np.ndarray:
    return np.asarray(image.convert("RGB"))


def drawings(channels: int = 1, size: int = 6, part: int = 2) -> tuple[torch.Tensor, torch.Tensor, Drawing]:
    """Two drawings of five steps on a 3 x 3 grid: step 2 is skipped by the second, step 3 by both."""
    parts = torch.full((2, channels, part, part), 0.4)
    drawing = Drawing(
        torch.tensor([[0, 1, 0, 0, 1], [1, 1, 0, 0, 0]]),
        torch.tensor([[4, 0, 8, 0, 2], [5, 1, 0, 0, 4]]),
        torch.tensor([[1, 1, 1, 0, 1], [1, 1, 0, 0, 1]]).bool(),
    )
    return *render_steps(drawing, parts, Grid(size, size, part)), drawing


def test_rounding_is_half_up_and_clamped() -> None:
    x = torch.tensor([-1.0, 0.0, 0.5, 126.5 / 255, 1.0, 7.0, float("nan"), float("inf")]).reshape(1, 1, 2, 4)
    assert show.to_uint8(x).tolist() == [[[0, 0, 128, 127], [255, 255, 0, 255]]]
    levels = torch.arange(256).reshape(1, 1, 16, 16)
    assert (show.to_uint8(levels / 255) == levels[0].numpy()).all()
    assert show.to_uint8(torch.rand(2, 3, 4, 5, dtype=torch.bfloat16)).shape == (2, 4, 5, 3)


@pytest.mark.parametrize("bad", [torch.rand(3, 4, 4), torch.rand(1, 2, 4, 4), torch.ones(1, 1, 4, 4).byte()])
def test_what_is_no_image_is_refused(bad: torch.Tensor) -> None:
    with pytest.raises(InputError, match="images to show"):
        show.grid(bad)


def test_nothing_to_show_is_refused() -> None:
    with pytest.raises(InputError, match="nothing to show"):
        show.grid(torch.rand(0, 1, 4, 4))
    with pytest.raises(InputError, match="same number"):
        show.pairs({"a": torch.rand(2, 1, 4, 4), "b": torch.rand(3, 1, 4, 4)})
    with pytest.raises(InputError, match="at least 1"):
        show.grid(torch.rand(1, 1, 4, 4), scale=0)
    with pytest.raises(InputError, match="as many labels"):
        show.grid(torch.rand(2, 1, 4, 4), labels=["one"])


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("gap", [0, 1, 3])
def test_every_pixel_of_a_grid(channels: int, gap: int) -> None:
    images = torch.rand(5, channels, 2, 3)
    sheet = pixels(show.grid(images, columns=3, scale=2, gap=gap))
    expected = np.full((2 * (4 + gap) + gap, 3 * (6 + gap) + gap, 3), show.GAP)
    expected[gap + 4 + gap : 2 * (4 + gap), gap + 2 * (6 + gap) : 3 * (6 + gap)] = show.BACK  # the place left over
    for i in range(5):
        for y in range(4):
            for x in range(6):
                color = np.floor(images[i, :, y // 2, x // 2].numpy() * 255 + 0.5)
                expected[gap + i // 3 * (4 + gap) + y, gap + i % 3 * (6 + gap) + x] = color
    assert (sheet == expected).all()


@pytest.mark.parametrize("shape", [(64, 1, 28, 28), (1, 1, 28, 28), (10, 3, 32, 32), (50, 1, 5, 5)])
def test_a_grid_is_of_a_size_to_look_at(shape: tuple[int, ...]) -> None:
    sheet = show.grid(torch.rand(shape))
    assert 600 <= sheet.width <= 1000
    assert sheet.height <= 1700


def test_labels_are_under_their_images() -> None:
    images = torch.zeros(2, 1, 4, 4)
    plain = show.grid(images, columns=2, scale=10, gap=2)
    sheet = pixels(show.grid(images, columns=2, scale=10, gap=2, labels=["", "77"]))
    assert sheet.shape[0] > plain.height and sheet.shape[1] == plain.width
    rows, columns = np.nonzero(sheet.min(-1) > 180)
    assert rows.min() >= 42 and columns.min() >= 44 and columns.max() < 84


def test_pairs_bring_views_to_one_size() -> None:
    images, canvases = torch.rand(3, 3, 8, 8), torch.rand(3, 1, 4, 4)
    picture = pixels(show.pairs({"image": images, "canvas": canvases}, scale=2, gap=1))
    enlarged = canvases.repeat_interleave(2, 2).repeat_interleave(2, 3).expand(-1, 3, -1, -1)
    sheet = pixels(show.grid(torch.cat([images, enlarged]), columns=3, scale=2, gap=1))
    margin = picture.shape[1] - sheet.shape[1]
    assert (picture[:, margin:] == sheet).all()
    for rows in (picture[:17, :margin], picture[17:, :margin]):  # a label beside each of the two rows
        assert (rows > 150).any() and (rows[:, :4] == show.BACK).all()


def test_pairs_wrap_into_bands() -> None:
    x = torch.rand(5, 1, 4, 4)
    picture = pixels(show.pairs({"a": x, "b": 1 - x}, columns=3, scale=2, gap=1))
    second = pixels(show.grid(x[3:], columns=3, scale=2, gap=1))
    sheet = 2 * 9 + 1  # two rows of 8 pixels, with their gaps
    start = picture.shape[0] - sheet
    assert start > sheet
    assert (picture[start : start + 10, picture.shape[1] - second.shape[1] :] == second).all()


@pytest.mark.parametrize("channels", [1, 3])
def test_a_bank_shows_its_parts_in_order(channels: int) -> None:
    parts = torch.rand(23, channels, 3, 3)
    picture = pixels(show.bank_picture(parts, scale=4))
    margin = picture.shape[1] - (10 * (12 + 4) + 4)
    for i in range(23):
        top, left = 4 + i // 10 * 16, margin + 4 + i % 10 * 16
        part = pixels(show.grid(parts[i : i + 1], scale=4, gap=0))
        assert (picture[top : top + 12, left : left + 12] == part).all()
    assert all((picture[4 + 16 * r : 16 + 16 * r, :margin] > 150).any() for r in range(3))  # an index beside each row


def tile(frame: Image.Image, index: int, side: int, gap: int) -> np.ndarray:
    """The index-th drawing of a frame with one row."""
    return pixels(frame)[gap : gap + side, gap + index * (side + gap) :][:, :side]


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("scale", [1, 3])
def test_the_newest_part_is_outlined_and_nothing_else(channels: int, scale: int) -> None:
    canvases, masks, drawing = drawings(channels)
    masks[1, 2, 0, :2, :2] = 1  # a skipped step has no place, whatever a mask says
    frames = show.animation_frames(canvases, masks, drawing.whether, columns=2, scale=scale)
    side, line, gap = 6 * scale, min(scale, 2), max(scale, 2)
    steps = [0, 1, 2, 4]  # every drawing skips step 3
    assert len(frames) == 1 + len(steps) + show.HOLD
    assert not any(tile(frames[0], i, side, gap).any() for i in range(2))  # the empty canvas
    for frame, step in zip(frames[1:], steps):
        for i in range(2):
            canvas = pixels(show.grid(canvases[i : i + 1, step], scale=scale, gap=0)).astype(int)
            if drawing.whether[i, step]:
                row, column = divmod(int(drawing.where[i, step]), 3)
                for y in range(side):
                    for x in range(side):
                        # how far outside the cell, which at the border of the canvas is taken to end `line` earlier
                        top, bottom = max(2 * row * scale, line), min(2 * (row + 1) * scale, side - line)
                        left, right = max(2 * column * scale, line), min(2 * (column + 1) * scale, side - line)
                        if 0 < max(top - y, y - bottom + 1, left - x, x - right + 1) <= line:
                            canvas[y, x] = show.ACCENT
            assert (tile(frame, i, side, gap) == canvas).all(), (step, i)
    for frame in frames[-show.HOLD :]:
        for i in range(2):
            canvas = pixels(show.grid(canvases[i : i + 1, -1], scale=scale, gap=0))
            assert (tile(frame, i, side, gap) == canvas).all()


def test_a_cropped_cell_is_outlined_inside_the_canvas() -> None:
    drawing = Drawing(torch.tensor([[0]]), torch.tensor([[3]]), torch.tensor([[True]]))
    canvases, masks = render_steps(drawing, torch.full((1, 1, 4, 4), 0.2), Grid(7, 7, 4))  # columns 0-3 and 4-6
    frame = show.animation_frames(canvases, masks, drawing.whether, scale=4)[1]
    marked = (tile(frame, 0, 28, 4) == show.ACCENT).all(-1).nonzero()
    assert [(int(a.min()), int(a.max())) for a in marked] == [(14, 27), (14, 27)]


@pytest.mark.parametrize("size", [(7, 7), (14, 14)])
def test_frames_are_even_and_end_with_the_images(size: tuple[int, int]) -> None:
    canvases, masks, drawing = drawings(3, size=7, part=3)
    images = torch.rand(2, 3, *size)
    frames = show.animation_frames(canvases, masks, drawing.whether, images, columns=2, scale=3)
    assert len(frames) == 1 + 4 + show.HOLD + show.FADE + show.HOLD
    assert len({f.size for f in frames}) == 1
    assert frames[0].width % 2 == frames[0].height % 2 == 0
    for frame in frames[-show.HOLD :]:
        assert (tile(frame, 1, 3 * size[0], 3) == pixels(show.grid(images[1:], scale=3, gap=0))).all()


def test_drawings_without_a_step_and_wrong_shapes() -> None:
    canvases, masks, drawing = drawings()
    nothing = torch.zeros_like(drawing.whether)
    assert len(show.animation_frames(canvases * 0, masks * 0, nothing)) == 1 + show.HOLD
    with pytest.raises(InputError, match="shapes"):
        show.animation_frames(canvases, masks[:, 1:], drawing.whether)
    with pytest.raises(InputError, match="as many images"):
        show.animation_frames(canvases, masks, drawing.whether, torch.rand(3, 1, 6, 6))


@pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning")  # of imageio's reader
@pytest.mark.parametrize("channels", [1, 3])
def test_animations_can_be_read_again(tmp_path: Path, channels: int) -> None:
    import imageio.v3 as iio

    canvases, masks, drawing = drawings(channels)
    images = torch.rand(2, channels, 24, 24, generator=torch.Generator().manual_seed(0))  # more colours than GIF has
    frames = show.animation_frames(canvases, masks, drawing.whether, images, columns=2, scale=4)
    paths = show.save_animation(frames, tmp_path / "new" / "two.v1", fps=10)
    assert [p.name for p in paths] == ["two.v1.gif", "two.v1.mp4"]
    assert sorted(tmp_path.joinpath("new").iterdir()) == paths  # and no temporary file

    with Image.open(paths[0]) as gif:
        distinct = len({f.tobytes() for f in frames})
        assert len(list(ImageSequence.Iterator(gif))) == distinct  # equal frames are one, shown for longer
        gif.seek(0)
        assert gif.size == frames[0].size
        assert gif.info["loop"] == 0
        sheet = 24 * 4 + 2 * 4  # above the caption, an empty canvas has colours that the palette keeps
        assert (pixels(gif)[:sheet] == pixels(frames[0])[:sheet]).all()
        durations = []
        for i in range(distinct):
            gif.seek(i)
            durations.append(gif.info["duration"])
        assert durations[0] == 100 and durations[-1] >= 2000
        assert sum(durations) == 100 * (len(frames) - 1) + 2000
        assert np.abs(pixels(gif).astype(int) - pixels(frames[-1])).mean() < 7  # its own palette; 8.5 by that of all
        gif.seek(1)  # our own colours are exact
        assert ((pixels(gif) == show.ACCENT).all(-1) == (pixels(frames[1]) == show.ACCENT).all(-1)).all()

    video = iio.imread(paths[1], plugin="FFMPEG")  # (N,H,W,3)
    assert video.shape == (len(frames) + 19, frames[0].height, frames[0].width, 3)  # the last rests for 20 frames
    for i in (0, 3, len(frames) - 1):
        assert np.abs(video[i].astype(int) - pixels(frames[i])).mean() < 12
    assert np.abs(video[-1].astype(int) - video[len(frames) - 1]).mean() < 3


def test_odd_frames_are_padded_and_mixed_ones_refused(tmp_path: Path) -> None:
    frames = [Image.new("RGB", (31, 33), (40 * i, 0, 0)) for i in range(3)]
    gif, _ = show.save_animation(frames, tmp_path / "odd.gif")
    assert {p.name for p in tmp_path.iterdir()} == {"odd.gif", "odd.mp4"}
    with Image.open(gif) as image:
        assert image.size == (32, 34) and len(list(ImageSequence.Iterator(image))) == 3
    for wrong in ([], [frames[0], Image.new("RGB", (4, 4))]):
        with pytest.raises(InputError, match="one size"):
            show.save_animation(wrong, tmp_path / "none")


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = show.save_picture(Image.new("RGB", (3, 2), show.TEXT), tmp_path / "a.png")
    before = path.read_bytes()

    def half(self: Image.Image, to: Path, *_: object, **__: object) -> None:
        Path(to).write_bytes(b"half")
        raise OSError("disk full")

    monkeypatch.setattr(Image.Image, "save", half)
    with pytest.raises(OSError, match="disk full"):
        show.save_picture(Image.new("RGB", (3, 2)), path)
    assert path.read_bytes() == before and list(tmp_path.iterdir()) == [path]


def test_a_data_uri_holds_the_picture() -> None:
    image = show.grid(torch.rand(4, 3, 3, 3), scale=2)
    head, data = show.png_data_uri(image).split(",")
    assert head == "data:image/png;base64"
    with Image.open(io.BytesIO(base64.b64decode(data))) as again:
        assert (pixels(again) == pixels(image)).all()


def test_curves_skip_what_is_not_there(tmp_path: Path) -> None:
    rows = [{"stage": "prior", "step": i, "loss": 9.0 - i} for i in range(9)]
    rows += [{"stage": "model", "step": 3, "loss": float("nan"), "elbo": -4.0}]
    small = plots.curves(rows, tmp_path / "one.png", ["loss"])
    wide = plots.curves(rows, tmp_path / "three.png", ["loss", "elbo", "absent"])
    with Image.open(small) as one, Image.open(wide) as three:
        assert three.width > 2.5 * one.width and one.height == three.height
        assert len(np.unique(pixels(one).reshape(-1, 3), axis=0)) > 20  # something is drawn
    assert sorted(p.name for p in tmp_path.iterdir()) == ["one.png", "three.png"]


def test_plots_against_a_setting_have_gaps(tmp_path: Path) -> None:
    places, known = ["3 %", "10 %", "30 %"], [(9.0, 1.0), (5.0, 0.0), (4.0, 0.5)]
    whole = plots.against(places, {"a": known, "b": known[::-1]}, tmp_path / "whole.png", "share", "FID")
    parts = {"a": [known[0], None, known[2]], "b": [None] * 3}
    gap = plots.against(places, parts, tmp_path / "gap.png", "share", "FID")
    with Image.open(whole) as one, Image.open(gap) as two:
        assert one.size == two.size and one.tobytes() != two.tobytes()
        assert len(np.unique(pixels(two).reshape(-1, 3), axis=0)) > 20
