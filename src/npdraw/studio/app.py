"""The studio's routes. Each passes its body to the `Service` in a lane. Every error becomes one sentence."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from importlib import resources
from typing import Any, NamedTuple

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException

from npdraw import __version__
from npdraw.errors import InputError
from npdraw.studio import schemas
from npdraw.studio.security import BUSY, Guard, error
from npdraw.studio.service import Service
from npdraw.studio.workers import Busy, Gone, Lane

WAIT, PATIENT_WAIT = 30.0, 300.0  # most seconds that a request waits in a lane, and a patient one
JSON_BYTES = 2**18
MEDIA_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".webmanifest": "application/manifest+json",
}
EXPORTS = {"png": "image/png", "gif": "image/gif", "mp4": "video/mp4", "json": "application/json"}


def guarded(service: Service, hosts: frozenset[str], token: str | None) -> Guard:
    """The whole studio as an ASGI app; `hosts` are the Host headers that it accepts if there is no token."""
    app = make_app(service)
    posts = (route for route in app.routes if isinstance(route, APIRoute) and "POST" in (route.methods or ()))
    limits = {route.path: JSON_BYTES for route in posts}
    limits |= {"/api/read": schemas.UPLOAD_BYTES, "/api/draw": service.image_bytes}
    if not service.model.has_likelihood:  # these carry a picture
        limits |= {f"/api/{verb}": JSON_BYTES + 2 * service.image_bytes for verb in ("decode", "complete", "export")}
    return Guard(app, hosts, token, limits)


class Lanes(NamedTuple):
    """Where requests wait, by how long their work takes."""

    quick: Lane
    pictures: Lane
    full: Lane
    slow: Lane
    behind: Lane  # patient requests, which let all others go first


def make_app(service: Service) -> FastAPI:
    quick, pictures, full, slow = (Lane(f"studio-{name}", WAIT) for name in ("quick", "pictures", "full", "slow"))
    lanes = Lanes(quick, pictures, full, slow, Lane("studio-behind", PATIENT_WAIT, (quick, pictures, full, slow)))

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        for lane in lanes:
            lane.close()

    app = FastAPI(
        title="npdraw studio",
        version=__version__,
        openapi_url="/api/openapi.json",
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        lifespan=lifespan,
        responses={status: {"model": schemas.Error} for status in (400, 401, 403, 408, 413, 503)},
    )
    _tell_errors(app)
    _serve_page(app)
    _answer(app, service, lanes)
    return app


def _answer(app: FastAPI, service: Service, lanes: Lanes) -> None:
    """Answer the requests of the API, each in its lane."""

    @app.get("/api/model")
    async def model() -> schemas.About:
        return service.about()

    @app.get("/api/parts")
    async def parts() -> schemas.Parts:
        return service.parts

    @app.post("/api/decode", response_class=Response, responses=_file("image/png", "application/octet-stream"))
    async def decode(body: schemas.Drawn, request: Request) -> Response:
        own = lanes.pictures if service.is_quick(body.evaluations) else lanes.full
        lane = lanes.behind if body.patient else own
        image = await lane.do(request, partial(service.decode, body))
        return Response(image, media_type="application/octet-stream" if body.raw else "image/png")

    @app.post("/api/next")
    async def next_(body: schemas.Next, request: Request) -> schemas.Odds:
        return await lanes.quick.do(request, lambda: service.next(body.cells, body.cell))

    @app.post("/api/compose")
    async def compose(body: schemas.Composing, request: Request) -> schemas.Cut:
        return await lanes.quick.do(request, lambda: service.compose(body.a, body.b, body.places))

    @app.post("/api/draw", openapi_extra=_raw("application/octet-stream"))
    async def draw(request: Request) -> schemas.Cut:
        data = await request.body()
        return await lanes.quick.do(request, lambda: service.draw(data))

    @app.post("/api/sample")
    async def sample(body: schemas.Sampling, request: Request) -> schemas.Samples:
        return await lanes.slow.do(request, partial(service.sample, body))

    @app.post("/api/complete")
    async def complete(body: schemas.Completing, request: Request) -> schemas.Endings:
        return await lanes.slow.do(request, partial(service.complete, body))

    @app.post("/api/read", openapi_extra=_raw("image/png", "image/jpeg", "image/webp", "image/gif", "image/bmp"))
    async def read(request: Request) -> schemas.ReadImage:
        data = await request.body()
        return await lanes.slow.do(request, partial(service.read, data))

    @app.post("/api/export", response_class=Response, responses=_file(*EXPORTS.values()))
    async def export(body: schemas.Exporting, request: Request) -> Response:
        made = await lanes.slow.do(request, partial(service.export, body))
        name = {"Content-Disposition": f'attachment; filename="drawing.{body.format}"'}
        return Response(made, media_type=EXPORTS[body.format], headers=name)


def _raw(*kinds: str) -> dict[str, Any]:
    """The OpenAPI entry of a body that is bytes."""
    content = {kind: {"schema": {"type": "string", "format": "binary"}} for kind in kinds}
    return {"requestBody": {"required": True, "content": content}}


def _file(*kinds: str) -> dict[int | str, dict[str, Any]]:
    """The OpenAPI entry of an answer that is a file."""
    return {200: {"content": {kind: {"schema": {"type": "string", "format": "binary"}} for kind in kinds}}}


def _serve_page(app: FastAPI) -> None:
    """Serve the page's files from a list that is made once. No path of a request reaches the file system."""
    folder = resources.files("npdraw.studio").joinpath("page")
    files = {file.name: file for file in folder.iterdir() if f".{file.name.rpartition('.')[2]}" in MEDIA_TYPES}

    @app.get("/", include_in_schema=False)
    async def index() -> Response:
        return await page("index.html")

    @app.get("/page/{name}", include_in_schema=False)
    async def page(name: str) -> Response:
        if name not in files:
            return error(404, "there is nothing here")
        return Response(files[name].read_bytes(), media_type=MEDIA_TYPES[f".{name.rpartition('.')[2]}"])


def _tell_errors(app: FastAPI) -> None:
    """Answer each error with one sentence."""

    def tell(kind: type[Exception], answer: Callable[[Any], Response]) -> None:
        async def handler(_: Request, problem: Exception) -> Response:
            return answer(problem)

        app.add_exception_handler(kind, handler)

    tell(InputError, lambda problem: error(400, str(problem)))
    tell(RequestValidationError, lambda problem: error(400, _sentence(problem.errors()[0])))
    tell(Busy, lambda _: error(503, BUSY))
    tell(Gone, lambda _: error(499, "nobody waits for this any more"))
    other = "this cannot be done"
    tell(HTTPException, lambda problem: error(problem.status_code, _NAMES.get(problem.status_code, other)))
    tell(Exception, lambda _: error(500, "the studio failed; its terminal says more"))


_NAMES = {
    400: "the body is not valid JSON",
    404: "there is nothing here",
    405: "this address does not take that method",
}


def _sentence(problem: dict[str, Any]) -> str:
    """The first error that pydantic found, in words."""
    if problem["type"] == "json_invalid":
        return _NAMES[400]
    name = ".".join(str(part)[:40] for part in problem["loc"][1:]) or "the body"
    message = str(problem["msg"])
    return f"{name}: {message[:1].lower()}{message[1:]}"
