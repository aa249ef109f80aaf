"""Pictures: only this module turns tensors into PIL images and files.

Choices:
- Tensors are floats in [0, 1], channels first, grey (C=1) or colour (C=3); `canvas.to_bytes` has the rounding rule.
- Images are only enlarged by whole factors, by nearest neighbour, so a pixel of the model stays a square.
- Sheets have a dark background with mid-grey gaps: black images stay apart, and white ones do not glare.
- A file is written under a temporary name in its folder and then renamed, so a reader never sees half a file.
- imageio-ffmpeg is imported where it is used: `import npdraw.show` needs pillow and numpy only.
"""

import base64
import io
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from PIL import Image, ImageDraw, ImageFont
from torch import Tensor

from npdraw.canvas import cell_pixels, render_steps, to_bytes
from npdraw.drawing import Drawing
from npdraw.errors import InputError
from npdraw.extras import need
from npdraw.files import replacing
from npdraw.inscription import Inscription
from npdraw.progress import Progress

if TYPE_CHECKING:
    from npdraw.completing import Completed
    from npdraw.model import NPDraw

Pixels = npt.NDArray[np.uint8]
Color = tuple[int, int, int]
BACK: Color = (24, 25, 28)
GAP: Color = (72, 84, 106)  # a grey with some blue, so that no grey pixel of a picture looks like it
TEXT: Color = (222, 224, 228)
ACCENT: Color = (255, 136, 20)
FONT_SIZE = 15
HOLD = 4  # frames for which the finished canvas and the decoded image stay
FADE = 3  # frames between the two
LAST_SECONDS = 2.0  # how long an animation pauses before it repeats
EDIT_WIDTH, COMPLETION_WIDTH = 140, 100  # most and least width of an image in these sheets, where whole factors allow
COMPLETIONS_IN_ROW = 9
HATCH = 4  # width in pixels of the stripes over free cells


def to_uint8(images: Tensor) -> Pixels:
    """Floats in [0, 1] to bytes, round half up: (B,1,H,W) -> (B,H,W), (B,3,H,W) -> (B,H,W,3)."""
    if images.ndim != 4 or images.shape[1] not in (1, 3) or not images.is_floating_point():
        raise InputError(
            "images to show must be floats in [0, 1] of shape (batch, 1 or 3 channels, height, width); "
            f"got {images.dtype} of shape {tuple(images.shape)}"
        )
    return arrays(to_bytes(images))


def arrays(pixels: Tensor) -> Pixels:
    """Bytes as NumPy and pillow have them: (B,1,H,W) -> (B,H,W), (B,3,H,W) -> (B,H,W,3)."""
    found: Pixels = pixels.permute(0, 2, 3, 1).cpu().numpy()  # (B,H,W,C)
    return found[..., 0] if found.shape[-1] == 1 else found


def picture(image: Tensor) -> Image.Image:
    """One image (C,H,W), floats in [0, 1], in its own size."""
    return Image.fromarray(to_uint8(image[None])[0])


def enlarged(pixels: Pixels, scale: int) -> Pixels:
    """One picture (H,W) or (H,W,3) with each pixel as a square of `scale` pixels."""
    return np.repeat(np.repeat(pixels, scale, 0), scale, 1)


def grid(
    images: Tensor,
    columns: int | None = None,
    scale: int | None = None,
    gap: int | None = None,
    labels: Sequence[str] | None = None,
) -> Image.Image:
    """A contact sheet of images (B,C,H,W), row by row, with a label under each if `labels` are given.

    `scale` enlarges every pixel. By default the sheet is 600 to 1000 pixels wide, if whole factors allow. `gap` is in
    pixels of the sheet, by default 2 to 4, growing with the scale. It also surrounds the sheet.
    """
    tiles = _rgb(images)
    columns, scale, gap = _plan(tiles.shape, columns or math.ceil(math.sqrt(len(tiles))), scale, gap)
    tiles = _resize(tiles, tiles.shape[1] * scale, tiles.shape[2] * scale)
    if labels is not None and len(labels) != len(tiles):
        raise InputError(f"{len(tiles)} images need as many labels; got {len(labels)}")
    return _labelled(tiles, columns, gap, labels) if labels else Image.fromarray(_sheet(tiles, columns, gap))


def edit_sheet(
    model: "NPDraw", pictures: Sequence[Tensor], drawings: Sequence[Drawing], places: Sequence[int]
) -> Image.Image:
    """An edit in one row: pictures A and B, the canvases of A, of B and of the result, and the picture of the result.

    Pictures (1,C,H,W) in [0, 1] and drawings are those of A, B and the result. The places taken from B are outlined.
    """
    canvases = F.interpolate(model.render(Drawing.cat(drawings)), model.decoder.size)
    tiles = _rgb(model.to_display(torch.cat([*pictures[:2], canvases, pictures[2]])))  # (6,H,W,3)
    scale = max(1, EDIT_WIDTH // tiles.shape[2])
    tiles = _resize(tiles, tiles.shape[1] * scale, tiles.shape[2] * scale)
    cells = torch.zeros(1, model.grid.cells, dtype=torch.bool)
    cells[:, places] = True
    inside = cell_pixels(cells, model.grid, tiles.shape[1:3])[0]  # (1,h,w)
    around = F.max_pool2d(inside, 5, stride=1, padding=2) > inside
    tiles[3:5, around[0].numpy()] = ACCENT
    return _labelled(tiles, len(tiles), 4, ["A", "B", "canvas A", "canvas B", "composed", "result"])


def completions_sheet(model: "NPDraw", kept: Drawing, fixed: Tensor, picture: Tensor, done: "Completed") -> Image.Image:
    """The canvas of what was kept, its free cells hatched, above the picture; then canvas and picture of each
    completion, with its log p. The arguments are those of `complete_picture` and what it gave."""
    begun, pictures = Drawing(kept.what, kept.where, kept.whether & fixed.to(kept.device)), [picture, done.pictures]
    canvases = F.interpolate(model.render(Drawing.cat([begun, done.drawings])), model.decoder.size)
    height, width = (-(-COMPLETION_WIDTH // picture.shape[3]) * side for side in picture.shape[2:])
    views = (model.to_display(x) for x in (canvases, torch.cat(pictures)))
    upper, lower = (_resize(_rgb(x), height, width) for x in views)  # (1+n,h,w,3) each
    free = cell_pixels(~fixed[None].cpu(), model.grid, (height, width))[0, 0].numpy() > 0
    upper[0, free & ((np.arange(height)[:, None] + np.arange(width)) // HATCH % 2 == 0)] = GAP
    tiles = np.concatenate([upper, np.full((len(upper), 4, width, 3), GAP, np.uint8), lower], axis=1)
    labels = ["kept", *(f"log p {value:.1f}" for value in done.found.log_prob.tolist())]
    return _labelled(tiles, min(COMPLETIONS_IN_ROW, len(tiles)), 4, labels)


def pairs(
    rows: Mapping[str, Tensor], columns: int | None = None, scale: int | None = None, gap: int | None = None
) -> Image.Image:
    """Views of the same B images, one labelled row per view: {"image": (B,C,H,W), "canvas": ...}.

    Smaller views (a canvas of 32 for an image of 64) are enlarged to the largest by nearest neighbour. If there are
    more images than `columns` (about 10 by default), they continue in another band of rows.
    """
    views = {name: _rgb(x) for name, x in rows.items()}
    counts = {len(x) for x in views.values()}
    if len(counts) != 1:
        raise InputError(f"every row must show the same number of images; got {sorted(counts)}")
    count = counts.pop()
    height, width = (max(x.shape[i] for x in views.values()) for i in (1, 2))
    columns = columns or math.ceil(count / math.ceil(count / 10))
    bands = math.ceil(count / columns)
    columns, scale, gap = _plan((bands * len(views) * columns, height, width, 3), columns, scale, gap)
    h, w = height * scale, width * scale
    sheets: list[Pixels] = []
    labels: list[tuple[float, str]] = []
    for start in range(0, count, columns):
        top = sum(len(s) for s in sheets)
        tiles = np.full((len(views), columns, h, w, 3), BACK, np.uint8)
        for r, (name, view) in enumerate(views.items()):
            part = view[start : start + columns]
            tiles[r, : len(part)] = _resize(part, h, w)
            labels.append((top + gap + r * (h + gap) + h / 2, name))
        sheets.append(_sheet(tiles.reshape(-1, h, w, 3), columns, gap))
        if start + columns < count:
            sheets.append(np.full((max(3 * gap, 8), sheets[0].shape[1], 3), BACK, np.uint8))
    return _label_left(np.concatenate(sheets), labels)


def reconstructions(model: "NPDraw", images: Tensor, parses: Drawing, drawing: Drawing, rebuilt: Tensor) -> Image.Image:
    """Images with the canvases of their parses and of the posterior's drawings, and what was rebuilt of the latter."""
    rows = {"image": images, "parse": model.render(parses), "canvas": model.render(drawing), "reconstruction": rebuilt}
    return pairs({name: model.to_display(x) for name, x in rows.items()})


def bank_picture(parts: Tensor, scale: int | None = None) -> Image.Image:
    """The parts (M,C,K,K) as a palette in index order; each row begins with the index of its first part."""
    tiles = _rgb(parts)
    columns = 10 if len(tiles) <= 100 else 20 if len(tiles) <= 400 else 40
    columns, scale, gap = _plan(tiles.shape, columns, scale, None)
    gap = max(gap, scale // 2)  # parts are a few large pixels: a thin gap would look like one of them
    h = tiles.shape[1] * scale
    labels = [(gap + r * (h + gap) + h / 2, str(r * columns)) for r in range(math.ceil(len(tiles) / columns))]
    return _label_left(_sheet(_resize(tiles, h, tiles.shape[2] * scale), columns, gap), labels)


def animation_frames(
    canvases: Tensor,
    masks: Tensor,
    whether: Tensor,
    images: Tensor | None = None,
    columns: int | None = None,
    scale: int | None = None,
    empty: float = 0.0,
) -> list[Image.Image]:
    """Frames of B drawings, step by step in one sheet, from the results of `render_steps` and of the decoder.

    canvases (B,T,C,H,W), masks (B,T,1,H,W), whether (B,T), images (B,C,*,*). The frames are: the empty canvas, of the
    level `empty`; one frame per step, with the cell of the newest part outlined unless the drawing skips the step; the
    finished canvas (`HOLD` frames); and, if images are given, a fade (`FADE` frames) into them (`HOLD` frames). A step
    that every drawing skips has no frame. Width and height are even, as H.264 requires.
    """
    b, t = whether.shape
    if canvases.ndim != 5 or canvases.shape[:2] != (b, t) or masks.shape != (b, t, 1, *canvases.shape[3:]):
        raise InputError(
            "canvases, masks and whether must have the shapes (B,T,C,H,W), (B,T,1,H,W) and (B,T); "
            f"got {tuple(canvases.shape)}, {tuple(masks.shape)} and {tuple(whether.shape)}"
        )
    decoded = None if images is None else _rgb(images)
    if decoded is not None and len(decoded) != b:
        raise InputError(f"{b} drawings need as many images; got {len(decoded)}")
    height, width = (max(canvases.shape[3 + i], decoded.shape[1 + i] if decoded is not None else 0) for i in (0, 1))
    columns, scale, gap = _plan((b, height, width, 3), columns or math.ceil(math.sqrt(b)), scale, None, target=640)
    h, w = height * scale, width * scale

    def frame(tiles: Pixels, caption: str, progress: float) -> Image.Image:
        sheet = Image.fromarray(_sheet(tiles, columns, gap))
        picture = Image.new("RGB", (sheet.width, sheet.height + FONT_SIZE + 14), BACK)
        picture.paste(sheet, (0, 0))
        _write(picture, (8, (sheet.height + 3 + picture.height) / 2), caption, "lm", picture.width - 16)
        picture.paste(ACCENT, (0, sheet.height, round(progress * picture.width), sheet.height + 3))
        return _even(picture)

    blank = np.full((b, h, w, 3), round(255 * empty), np.uint8)
    frames = [frame(blank, f"step 0 of {t}", 0)]
    drawn, cells = whether.bool().cpu(), (masks[:, :, 0] > 0).cpu().numpy()  # (B,T), (B,T,H,W)
    for step in drawn.any(0).nonzero().flatten().tolist():
        tiles = _resize(_rgb(canvases[:, step]), h, w)
        for i in drawn[:, step].nonzero().flatten().tolist():
            _outline(tiles[i], cells[i, step], min(scale, 2))
        frames.append(frame(tiles, f"step {step + 1} of {t}", (step + 1) / t))
    last = _resize(_rgb(canvases[:, -1]), h, w) if t else blank
    frames += [frame(last, "canvas", 1)] * HOLD
    if decoded is not None:
        final = _resize(decoded, h, w)
        for k in range(1, FADE + 1):
            mixed = last + (final.astype(np.float32) - last) * (k / (FADE + 1))
            frames.append(frame(np.rint(mixed).astype(np.uint8), "canvas to image", 1))
        frames += [frame(final, "image", 1)] * HOLD
    return frames


def drawing_frames(model: "NPDraw", drawing: Drawing, images: Tensor, scale: int | None = None) -> list[Image.Image]:
    """`animation_frames` of drawings and their images (B,C,*,*), these as a person sees them (`NPDraw.to_display`)."""
    drawing, empty = drawing.to(model.device), float(model.config.data.inverted)
    canvases, masks = render_steps(drawing, model.bank.parts, model.grid)
    return animation_frames(model.to_display(canvases), masks, drawing.whether, images, scale=scale, empty=empty)


def animation_paths(path_stem: Path | str, endings: Sequence[str] = (".gif", ".mp4")) -> list[Path]:
    """The files that `save_animation` writes. The given name may have a suffix or not."""
    stem = Path(path_stem)
    stem = stem.with_suffix("") if stem.suffix in (".gif", ".mp4") else stem
    return [stem.with_name(stem.name + end) for end in endings]


def save_animation(
    frames: Sequence[Image.Image], path_stem: Path | str, fps: int = 8, endings: Sequence[str] = (".gif", ".mp4")
) -> list[Path]:
    """Write frames as `path_stem`.gif, which loops forever, and .mp4 (H.264). Both pause on the last frame. If the
    encoder for the MP4 is not installed, the MP4 is omitted, and a line says so."""
    if not frames or len({f.size for f in frames}) != 1:
        raise InputError("an animation needs frames, all of one size")
    if ".mp4" in endings:
        try:
            need("an MP4", "video", "imageio_ffmpeg")
        except InputError as error:
            if len(endings) == 1:
                raise
            Progress().say(f"no MP4 is written: {error}")
            endings = [end for end in endings if end != ".mp4"]
    paths = animation_paths(path_stem, endings)
    frames = [_even(f.convert("RGB")) for f in frames]
    for path in paths:
        with replacing(path) as temporary:
            (_write_gif if path.suffix == ".gif" else _write_mp4)(frames, temporary, fps)
    return paths


def save_picture(image: Image.Image, path: Path | str, said: Inscription | None = None) -> Path:
    """Write one PNG."""
    with replacing(Path(path)) as temporary:
        image.save(temporary, "PNG", optimize=True, pnginfo=said and said.info())
    return Path(path)


def png(image: Image.Image, said: Inscription | None = None, small: bool = True) -> bytes:
    """The bytes of a PNG. A `small` one takes longer to make."""
    buffer = io.BytesIO()
    image.save(buffer, "PNG", optimize=small, pnginfo=said and said.info())
    return buffer.getvalue()


def png_data_uri(image: Image.Image) -> str:
    """The picture as the `src` of an HTML image, with which notebooks show our objects."""
    return "data:image/png;base64," + base64.b64encode(png(image)).decode("ascii")


def _rgb(images: Tensor) -> Pixels:
    """(B,C,H,W) -> (B,H,W,3). It is an error if there is nothing to show."""
    pixels = to_uint8(images)
    if pixels.size == 0:
        raise InputError(f"there is nothing to show in images of shape {tuple(images.shape)}")
    return np.repeat(pixels[..., None], 3, -1) if pixels.ndim == 3 else pixels


def _plan(
    shape: tuple[int, ...], columns: int, scale: int | None, gap: int | None, target: int = 800
) -> tuple[int, int, int]:
    """Columns, scale and gap of a sheet for tiles (N,h,w,3): about `target` wide, and at most twice that tall."""
    n, h, w, _ = shape
    if columns < 1 or (scale is not None and scale < 1) or (gap is not None and gap < 0):
        raise InputError("columns and scale of a sheet must be at least 1, its gap at least 0")
    if scale is None:
        rows, edge = math.ceil(n / columns), 4 if gap is None else gap
        widest = (target * 5 // 4 - edge * (columns + 1)) // (columns * w)
        tallest = (target * 2 - edge * (rows + 1)) // (rows * h)
        scale = max(1, min(round(target / (columns * w)), widest, tallest))
    return columns, scale, min(max(scale, 2), 4) if gap is None else gap


def _resize(tiles: Pixels, height: int, width: int) -> Pixels:
    """Nearest neighbour: (N,h,w,3) -> (N,height,width,3), always a copy."""
    rows = np.arange(height) * tiles.shape[1] // height
    columns = np.arange(width) * tiles.shape[2] // width
    return tiles[:, rows[:, None], columns]


def _sheet(tiles: Pixels, columns: int, gap: int, below: int = 0) -> Pixels:
    """Tiles (N,h,w,3) in rows, with gaps between and around, and `below` dark pixels under each for a label."""
    n, h, w, _ = tiles.shape
    rows = math.ceil(n / columns)
    block = np.full((rows * columns, h + below + gap, w + gap, 3), GAP, np.uint8)
    block[:, : h + below, :w] = BACK
    block[:n, :h, :w] = tiles
    block = block.reshape(rows, columns, *block.shape[1:]).swapaxes(1, 2)  # (rows, h, columns, w, 3)
    sheet = np.full((rows * (h + below + gap) + gap, columns * (w + gap) + gap, 3), GAP, np.uint8)
    sheet[gap:, gap:] = block.reshape(rows * block.shape[1], -1, 3)
    return sheet


def _labelled(tiles: Pixels, columns: int, gap: int, labels: Sequence[str]) -> Image.Image:
    """The sheet of tiles (N,h,w,3), with a label under each."""
    h, w, below = tiles.shape[1], tiles.shape[2], FONT_SIZE + 6
    sheet = Image.fromarray(_sheet(tiles, columns, gap, below))
    for i, label in enumerate(labels):
        row, column = divmod(i, columns)
        x, y = gap + column * (w + gap) + w / 2, gap + row * (h + below + gap) + h + below / 2
        _write(sheet, (x, y), label, "mm", w)
    return sheet


def _outline(tile: Pixels, cell: npt.NDArray[np.bool_], line: int) -> None:
    """Draw a frame around the cell, a mask (H,W), on its enlarged tile (h,w,3), in place. It stays inside the tile."""
    if not cell.any():
        return
    spans = []
    for inside, side, size in zip(cell.nonzero(), cell.shape, tile.shape):
        start, stop = (-(-i * size // side) for i in (int(inside.min()), int(inside.max()) + 1))
        spans.append((max(start - line, 0), min(stop + line, size)))
    (top, bottom), (left, right) = spans
    inner = tile[top + line : bottom - line, left + line : right - line].copy()
    tile[top:bottom, left:right] = ACCENT
    tile[top + line : bottom - line, left + line : right - line] = inner


def _write(image: Image.Image, at: tuple[float, float], text: str, anchor: str, width: float = math.inf) -> None:
    """Write text, shortened with an ellipsis if it is wider than `width`."""
    font = ImageFont.load_default(FONT_SIZE)
    short = text
    while short and font.getlength(short) > width:
        text = text[:-1]
        short = text + "…" if text else ""
    ImageDraw.Draw(image).text(at, short, fill=TEXT, font=font, anchor=anchor)


def _label_left(sheet: Pixels, labels: Sequence[tuple[float, str]]) -> Image.Image:
    """Add a dark margin with labels (height of the middle, text) to the left of a sheet."""
    font = ImageFont.load_default(FONT_SIZE)
    margin = math.ceil(max(font.getlength(text) for _, text in labels)) + 20
    picture = Image.new("RGB", (margin + sheet.shape[1], sheet.shape[0]), BACK)
    picture.paste(Image.fromarray(sheet), (margin, 0))
    for y, text in labels:
        _write(picture, (margin - 10, y), text, "rm")
    return picture


def _even(image: Image.Image) -> Image.Image:
    """Pad to even width and height at the right and the bottom."""
    if image.width % 2 == image.height % 2 == 0:
        return image
    padded = Image.new("RGB", (image.width + image.width % 2, image.height + image.height % 2), BACK)
    padded.paste(image, (0, 0))
    return padded


def _palette(pictures: Sequence[Image.Image]) -> Image.Image:
    """Black, our own four colours, and 251 colours of the pictures, each in the middle of those that it replaces."""
    stacked = Image.fromarray(np.concatenate([np.asarray(picture) for picture in pictures]))
    found = stacked.quantize(251, Image.Quantize.MEDIANCUT, kmeans=3).getpalette() or []
    palette = Image.new("P", (1, 1))
    palette.putpalette([c for color in ((0, 0, 0), BACK, GAP, TEXT, ACCENT) for c in color] + found[: 3 * 251])
    return palette


def _write_gif(frames: Sequence[Image.Image], path: Path, fps: int) -> None:
    """One palette for all frames, so that still pixels do not flicker. The last frame, seen longest, has its own."""
    common = _palette([frames[round(i * (len(frames) - 1) / 5)] for i in range(6)])
    own = frames[-1].quantize(palette=_palette(frames[-1:]), dither=Image.Dither.NONE)
    indexed = [own if f == frames[-1] else f.quantize(palette=common, dither=Image.Dither.NONE) for f in frames]
    durations = [round(1000 / fps)] * (len(frames) - 1) + [round(1000 * LAST_SECONDS)]
    indexed[0].save(path, "GIF", save_all=True, append_images=indexed[1:], duration=durations, loop=0, disposal=1)


def _write_mp4(frames: Sequence[Image.Image], path: Path, fps: int) -> None:
    """H.264 by the encoder in imageio-ffmpeg, in the pixel format that every player supports."""
    import imageio_ffmpeg

    options = ["-f", "mp4", "-movflags", "+faststart", "-crf", "20", "-preset", "medium"]
    writer = imageio_ffmpeg.write_frames(
        str(path), frames[0].size, fps=fps, codec="libx264", pix_fmt_out="yuv420p", quality=None, macro_block_size=2,
        output_params=options,
    )  # fmt: skip
    writer.send(None)
    try:
        for f in [*frames, *[frames[-1]] * round(fps * LAST_SECONDS - 1)]:
            writer.send(f.tobytes())
    finally:
        writer.close()
