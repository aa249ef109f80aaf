"""An independent reading of what edits mean, in plain loops over pixels and dictionaries. Imports nothing of npdraw.

A drawing is a dictionary from place to part. Pictures are lists of rows of numbers, or of tuples of channels.
"""

from collections.abc import Iterable, Mapping, Sequence

Step = tuple[int, int, int]  # what, where, whether
Cells = dict[int, int]  # place -> part
Part = Sequence[Sequence[Sequence[float]]]  # (C,K,K)
Picture = Sequence[Sequence[Sequence[float]]]  # (C,H,W)


def distance(a: Sequence[float], b: Sequence[float]) -> float:
    total = 0.0
    for x, y in zip(a, b, strict=True):
        total += (x - y) ** 2
    return total**0.5


def numbers(part: Part) -> list[float]:
    return [value for channel in part for row in channel for value in row]


def drawn_at(steps: Iterable[Step]) -> dict[int, list[int]]:
    """Every part that a drawing puts into each place."""
    found: dict[int, list[int]] = {}
    for what, where, whether in steps:
        if whether:
            found.setdefault(where, []).append(what)
    return found


def tidy_choices(steps: Iterable[Step], parts: Sequence[Part]) -> dict[int, dict[int, float]]:
    """Place -> the parts that may be drawn there, each with its distance beyond that of the nearest part."""
    allowed = {}
    for place, several in drawn_at(steps).items():
        if len(several) == 1:
            allowed[place] = {several[0]: 0.0}
            continue
        cell = [max(values) for values in zip(*(numbers(parts[i]) for i in several), strict=True)]
        away = [distance(numbers(part), cell) for part in parts]
        allowed[place] = {i: d - min(away) for i, d in enumerate(away)}
    return allowed


def places_in(box: Sequence[int], image: tuple[int, int], canvas: tuple[int, int], size: int) -> list[int]:
    """Places whose cell has its centre in the box, found by walking over the image along a fine ruler.

    The ruler has 2 * side marks per pixel of the image, so every centre is on a mark. A mark belongs to the pixel that
    ends there.
    """

    def along(low: int, high: int, full: int, side: int) -> list[int]:
        count = 0
        while count * size < side:
            count += 1
        before = 0  # padding before the canvas: half, rounded down
        while 2 * (before + 1) <= count * size - side:
            before += 1
        hit = []
        for cell in range(count):
            mark = (2 * (cell * size - before) + size) * full  # the mark of the centre
            for pixel in range(low, high):
                if pixel * 2 * side < mark <= (pixel + 1) * 2 * side:
                    hit.append(cell)
        return hit

    x0, y0, x1, y1 = box
    across = 0
    while across * size < canvas[1]:
        across += 1
    rows, columns = along(y0, y1, image[0], canvas[0]), along(x0, x1, image[1], canvas[1])
    return [row * across + column for row in rows for column in columns]


def compose(a: Mapping[int, int], b: Mapping[int, int], places: Iterable[int]) -> Cells:
    made = dict(a)
    for place in places:
        if place in b:
            made[place] = b[place]
        elif place in made:
            del made[place]
    return made


def shift(cells: Mapping[int, int], rows: int, columns: int, height: int, width: int) -> Cells:
    made = {}
    for place, part in cells.items():
        y, x = place // width + rows, place % width + columns
        if 0 <= y < height and 0 <= x < width:
            made[y * width + x] = part
    return made


def likeness(parts: Sequence[Part], what: int) -> list[float]:
    """The distance of every part from one of them."""
    return [distance(numbers(part), numbers(parts[what])) for part in parts]


def paint(cells: Mapping[int, int], parts: Sequence[Part], height: int, width: int) -> list[list[list[float]]]:
    """The canvas (C,H,W) of a drawing, pixel by pixel."""
    channels, size = len(parts[0]), len(parts[0][0])
    across, down = -(-width // size), -(-height // size)
    top, left = (down * size - height) // 2, (across * size - width) // 2
    canvas = [[[0.0] * width for _ in range(height)] for _ in range(channels)]
    for c in range(channels):
        for y in range(height):
            for x in range(width):
                place = (y + top) // size * across + (x + left) // size
                if place in cells:
                    canvas[c][y][x] = parts[cells[place]][c][(y + top) % size][(x + left) % size]
    return canvas


def splitmix(value: int) -> int:
    """The finaliser of splitmix64."""
    mask = 2**64 - 1
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & mask
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & mask
    return value ^ (value >> 31)


def blend(drawings: Sequence[Mapping[int, int]], weights: Sequence[float], seed: int, places: int) -> Cells:
    """Each place is taken from one drawing: the one whose share of the weights contains the place's random number."""
    mask, golden, stream = 2**64 - 1, 0x9E3779B97F4A7C15, 5
    key = splitmix((splitmix((seed + golden) & mask) + (stream + 1) * 2654435769) & mask)
    made = {}
    for place in range(places):
        number = (splitmix((key + (place + 1) * golden) & mask) >> 11) / 2**53 * sum(weights)
        chosen, below = 0, weights[0]
        while number >= below:
            chosen += 1
            below += weights[chosen]
        if place in drawings[chosen]:
            made[place] = drawings[chosen][place]
    return made


def place_of(y: int, x: int, scale: int, canvas: tuple[int, int], size: int) -> tuple[int, int]:
    """Row and column of the cell that contains a pixel of an image, which is `scale` times as large as its canvas."""
    height, width = canvas
    down, across = -(-height // size), -(-width // size)
    return (y // scale + (down * size - height) // 2) // size, (x // scale + (across * size - width) // 2) // size


def change_beyond(
    before: Picture, after: Picture, edited: Iterable[int], scale: int, canvas: tuple[int, int], size: int
) -> float | None:
    """The share of all change that is in pixels of cells which touch no edited cell; None if nothing changed."""
    across, total, outside = -(-canvas[1] // size), 0.0, 0.0
    cells = [(place // across, place % across) for place in edited]
    for c in range(len(before)):
        for y in range(len(before[c])):
            for x in range(len(before[c][y])):
                change = abs(after[c][y][x] - before[c][y][x])
                row, column = place_of(y, x, scale, canvas, size)
                total += change
                if all(abs(row - r) > 1 or abs(column - s) > 1 for r, s in cells):
                    outside += change
    return outside / total if total else None


def found_in(
    picture: Picture, cells: Mapping[int, int], parts: Sequence[Part], scale: int, canvas: tuple[int, int]
) -> list[tuple[bool, int]]:
    """For each drawn cell of a picture of bytes: whether Alg. 1 draws the same part there, and how many parts are
    nearer to the cell than this part."""
    (height, width), channels, size = canvas, len(parts[0]), len(parts[0][0])
    down, across = -(-height // size), -(-width // size)
    top, left = (down * size - height) // 2, (across * size - width) // 2
    found = []
    for place, part in cells.items():
        values = []
        for c in range(channels):
            for i in range(size):
                for j in range(size):
                    y, x = place // across * size + i - top, place % across * size + j - left
                    inside, value = 0 <= y < height and 0 <= x < width, 0.0
                    if inside:  # the average of the image's pixels in this pixel of the canvas
                        for dy in range(scale):
                            for dx in range(scale):
                                value += picture[c][y * scale + dy][x * scale + dx] / 255 / scale**2
                    values.append(value)
        away = [distance(values, numbers(p)) for p in parts]
        drawn = min(away) - distance(values, [0.0] * len(values)) <= 0.01
        found.append((drawn and away.index(min(away)) == part, sum(d < away[part] for d in away)))
    return found
