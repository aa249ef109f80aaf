"""A small model, a studio with it, and the requests of tests to the studio."""

import asyncio
import contextlib
import io
import math
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, TypeVar

import httpx
import numpy as np
import torch
from PIL import Image
from torch import Tensor

from npdraw.bank import PartBank
from npdraw.config import Config, from_dict
from npdraw.drawing import Drawing
from npdraw.model import NPDraw
from npdraw.studio.app import guarded
from npdraw.studio.security import Guard
from npdraw.studio.service import Service

T = TypeVar("T")
HOST = "127.0.0.1:8642"
WEIGHTS = "0123456789abcdef"
CELLS = [-1, 2, 0, -1, 5, -1, 1, -1, 3]


def small(
    height: int = 9,
    width: int = 12,
    k: int = 4,
    m: int = 6,
    c: int = 1,
    flow: bool = False,
    free: bool = True,
    **data: Any,
) -> NPDraw:
    """A model with random weights: 3 x 3 cells of 4 pixels, padded by one row above and two rows below the canvas."""
    plain = {"likelihood": "bernoulli" if c == 1 else "mixture"}
    flowing = {"likelihood": "flow", "blocks": 1, "evaluations": 9, "freedom": 0.25 * free}
    sections = {
        "data": {"height": height, "width": width, "channels": c, "canvas": max(height, width), **data},
        "bank": {"part_size": k, "parts": m},
        "prior": {"width": 8, "depth": 1, "heads": 2, "head_dim": 4, "mlp": 12, "stem_channels": 4},
        "posterior": {"width": 8},
        "decoder": {"width": 8, **(flowing if flow else plain)},
        "model_stage": {"parsed_start": 1.0, "parsed_end": 1.0, "noise": 0.5 * free} if flow else {},
    }
    torch.manual_seed(0)
    model = NPDraw(from_dict(Config, sections), PartBank(torch.rand(m, c, k, k) * 0.9 + 0.1))
    with torch.no_grad():
        for p in model.parameters():
            if p.ndim > 1:
                p.copy_(torch.randn(p.shape) * 1.5 / math.sqrt(p[0].numel()))
    return model.requires_grad_(False).eval()


def studio(model: NPDraw | None = None, token: str | None = None) -> Guard:
    return guarded(Service(model or small(), "small", WEIGHTS), frozenset({HOST, "localhost:8642"}), token)


@contextlib.asynccontextmanager
async def visiting(guard: Guard, **headers: str) -> AsyncIterator[httpx.AsyncClient]:
    """A client of the studio. The studio is shut down afterwards."""
    transport = httpx.ASGITransport(guard)
    app: Any = guard.app
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=transport, base_url=f"http://{HOST}", headers=headers, timeout=60) as client,
    ):
        yield client


def visit(guard: Guard, visitor: Callable[[httpx.AsyncClient], Awaitable[T]], **headers: str) -> T:
    """The result of a visitor, who gets a client of the studio."""

    async def run() -> T:
        async with visiting(guard, **headers) as client:
            return await visitor(client)

    return asyncio.run(run())


def ask(guard: Guard, method: str, path: str, **more: Any) -> httpx.Response:
    """Send one request. The studio is shut down afterwards."""
    return visit(guard, lambda client: client.request(method, path, **more))


def drawing_of(cells: list[int]) -> Drawing:
    what = torch.tensor([cells])
    return Drawing(what, torch.arange(len(cells))[None], what >= 0)


def pixels_of(data: bytes) -> np.ndarray[Any, Any]:
    """The pixels of a PNG, as they are in the file."""
    with Image.open(io.BytesIO(data)) as image:
        assert image.format == "PNG"
        return np.asarray(image)


def good(response: httpx.Response) -> Any:
    assert response.status_code == 200, response.text
    return response.json()


def post(model: NPDraw, path: str, **body: Any) -> Any:
    return good(ask(studio(model), "POST", path, json=body))


def levels(image: Tensor) -> np.ndarray[Any, Any]:
    """(C,H,W) -> the bytes of a picture"""
    x = (image.clamp(0, 1) * 255 + 0.5).floor().to(torch.uint8).permute(1, 2, 0).numpy()
    return x[..., 0] if x.shape[-1] == 1 else x
