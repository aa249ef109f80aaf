"""A small model, the studio around it, and how tests ask it."""

import asyncio
import contextlib
import math
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, TypeVar

import httpx
import torch

from npdraw.bank import PartBank
from npdraw.config import Config, from_dict
from npdraw.model import NPDraw
from npdraw.studio.app import guarded
from npdraw.studio.guard import Guard
from npdraw.studio.service import Service

T = TypeVar("T")
HOST = "127.0.0.1:8642"
WEIGHTS = "0123456789abcdef"


def small(height: int = 9, width: int = 12, k: int = 4, m: int = 6, c: int = 1, **data: Any) -> NPDraw:
    """A model with random weights: 3 x 3 cells of 4 pixels, one row above and two below the canvas."""
    sections = {
        "data": {"height": height, "width": width, "channels": c, "canvas": max(height, width), **data},
        "bank": {"part_size": k, "parts": m},
        "prior": {"width": 8, "depth": 1, "heads": 2, "head_dim": 4, "mlp": 12, "stem_channels": 4},
        "posterior": {"width": 8},
        "decoder": {"width": 8, "likelihood": "bernoulli" if c == 1 else "mixture"},
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
    """A client of the studio; its lanes are closed afterwards."""
    transport = httpx.ASGITransport(guard)
    app: Any = guard.app
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=transport, base_url=f"http://{HOST}", headers=headers, timeout=60) as client,
    ):
        yield client


def visit(guard: Guard, visitor: Callable[[httpx.AsyncClient], Awaitable[T]], **headers: str) -> T:
    """What comes of a visit."""

    async def run() -> T:
        async with visiting(guard, **headers) as client:
            return await visitor(client)

    return asyncio.run(run())


def ask(guard: Guard, method: str, path: str, **more: Any) -> httpx.Response:
    """One question, and the studio is closed after it."""
    return visit(guard, lambda client: client.request(method, path, **more))
