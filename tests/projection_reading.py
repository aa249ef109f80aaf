"""An independent reading of kept parts and of the seam, in plain loops and by a solver. Imports nothing of npdraw."""

import numpy as np


def parse(cell: np.ndarray, parts: np.ndarray) -> tuple[int, bool]:
    """The nearest part of a cell (D,), and whether Alg. 1 draws it; parts (M,D)."""
    distances = [float(np.sqrt(((cell - part) ** 2).sum())) for part in parts]
    best = min(range(len(parts)), key=lambda i: distances[i])
    return best, distances[best] - float(np.sqrt((cell**2).sum())) <= 0.01


def least_move(cell: np.ndarray, wanted: int, parts: np.ndarray, rounds: int = 200_000) -> float:
    """Length of the shortest move after which the wanted part is nearer than all other parts and than an empty cell: a
    quadratic program with one row per plane, solved by Hildreth's method."""
    a = parts[wanted]
    rivals = [part for i, part in enumerate(parts) if i != wanted] + [np.zeros_like(a)]
    rows = [(b - a, (float(b @ b) - float(a @ a)) / 2) for b in rivals]
    weights, p = [0.0] * len(rows), cell.copy()
    for _ in range(rounds // len(rows)):
        for i, (normal, offset) in enumerate(rows):
            step = max((float(normal @ p) - offset) / float(normal @ normal), -weights[i])
            weights[i] += step
            p = p - step * normal
    return float(np.sqrt(((p - cell) ** 2).sum()))


def seam(edited: list[list[bool]], cell: int, reach: int) -> np.ndarray:
    """The mask of the edited cells, which have `cell` pixels per side, after `soften`."""
    height, width = len(edited) * cell, len(edited[0]) * cell
    return soften([[edited[i // cell][j // cell] for j in range(width)] for i in range(height)], reach)


def soften(inside: list[list[bool]], reach: int) -> np.ndarray:
    """A mask of pixels, grown by `reach` pixels and then averaged over `reach` pixels around each."""
    height, width = len(inside), len(inside[0])

    def around(i: int, j: int) -> list[tuple[int, int]]:
        return [
            (y, x)
            for y in range(max(0, i - reach), min(height, i + reach + 1))
            for x in range(max(0, j - reach), min(width, j + reach + 1))
        ]

    grown = [[any(inside[y][x] for y, x in around(i, j)) for j in range(width)] for i in range(height)]
    return np.array([[np.mean([grown[y][x] for y, x in around(i, j)]) for j in range(width)] for i in range(height)])


def edited_pixels(places: set[int], image: tuple[int, int], canvas: tuple[int, int], size: int) -> np.ndarray:
    """How much of each pixel of an image is made anew if these cells of its canvas are edited: (H,W). Cells have `size`
    pixels per side, and half of the padding is before the canvas."""
    scale = image[0] // canvas[0]
    across = -(-canvas[1] // size)
    top, left = ((-(-side // size) * size - side) // 2 for side in canvas)
    inside = [
        [(y // scale + top) // size * across + (x // scale + left) // size in places for x in range(image[1])]
        for y in range(image[0])
    ]
    return soften(inside, max(1, size * scale // 4))
