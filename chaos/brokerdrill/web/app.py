"""`brokerdrill serve`: the live page, its events, the reports; read-only, but for an abort behind a token."""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import json
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import FileResponse, HTMLResponse, JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from brokerdrill.base.errors import BrokerdrillError
from brokerdrill.gameday.pages import PUBLISHED
from brokerdrill.report.page import own, render
from brokerdrill.results.regression import judged, series_of
from brokerdrill.results.trends import coverage_rows, trends_view
from brokerdrill.runner.guards.stop_files import ask_to_abort
from brokerdrill.web import past
from brokerdrill.web.live import Stage

LOOK_PERIOD_S = 0.2
# Says to proxies and browsers that the connection lives.
KEEP_ALIVE_S = 10
ALPHA, RECENT = 0.05, 5
# The page asks its own server for events; nothing is loaded from anywhere else.
POLICY = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data:; font-src data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {"Content-Security-Policy": POLICY, "X-Content-Type-Options": "nosniff", "Cache-Control": "no-store"}


@dataclass
class Board:
    """The run under way, looked at once for all who watch, and only while somebody does."""

    stage: Stage
    watchers: int = 0
    newest: str = ""
    changed: asyncio.Condition = field(default_factory=asyncio.Condition)
    _task: asyncio.Task[None] | None = None

    async def watch(self) -> AsyncIterator[str]:
        """Yield the state as JSON: at once, and whenever it is another; "" after KEEP_ALIVE_S without a change."""
        self.watchers += 1
        if self._task is None:
            self._task = asyncio.create_task(self._look())
        seen = ""
        try:
            while True:
                yield self.newest if self.newest != seen else ""
                seen = self.newest
                async with self.changed:
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(KEEP_ALIVE_S):
                            while self.newest == seen:
                                await self.changed.wait()
        finally:
            self.watchers -= 1
            if not self.watchers and self._task:
                self._task.cancel()
                self._task = None
                # Whoever watches next gets nothing until it is looked at again.
                self.newest = ""

    async def _look(self) -> None:
        while True:
            found = json.dumps(self.stage.look())
            if found != self.newest:
                self.newest = found
                async with self.changed:
                    self.changed.notify_all()
            await asyncio.sleep(LOOK_PERIOD_S)


def make_app(
    runs: Path,
    token: str | None = None,
    applying: Callable[[], Sequence[tuple[str, str]]] = tuple,
    hosts: Sequence[str] = ("*",),
) -> Starlette:
    """Return the application for a folder of runs. Without `token` nothing can be aborted; `applying` returns the
    (drill, topology) that could be drilled; only requests for one of `hosts` are answered."""
    pages = _Pages(runs, token, applying)
    return Starlette(
        routes=[
            Route("/", pages.page),
            Route("/events", pages.events),
            Route("/state.json", pages.state),
            Route("/abort", pages.abort, methods=["POST"]),
            Route("/trends.html", pages.trends),
            Route("/runs/{run}/{file}", pages.report),
        ],
        middleware=[Middleware(TrustedHostMiddleware, allowed_hosts=[*hosts])],
        exception_handlers={HTTPException: _refused, BrokerdrillError: _failed},
    )


class _Pages:
    """What is answered to each request; see `make_app`."""

    def __init__(self, runs: Path, token: str | None, applying: Callable[[], Sequence[tuple[str, str]]]) -> None:
        self._runs = runs
        self._token = token
        self._applying = applying
        self._board = Board(Stage(runs))

    async def page(self, _: Request) -> Response:
        seen = await asyncio.to_thread(lambda: past.view(self._runs, self._applying()))
        text = render("live.html.j2", live_script=own("live.js"), may_abort=self._token is not None, **seen)
        return HTMLResponse(text, headers=HEADERS)

    async def events(self, _: Request) -> Response:
        async def stream() -> AsyncIterator[str]:
            async for state in self._board.watch():
                yield f"data: {state}\n\n" if state else ": alive\n\n"

        headers = {**HEADERS, "X-Accel-Buffering": "no"}
        return StreamingResponse(stream(), media_type="text/event-stream", headers=headers)

    async def abort(self, request: Request) -> Response:
        kind, _, given = request.headers.get("Authorization", "").partition(" ")
        if self._token is None:
            raise HTTPException(403, "this server has no token: nothing can be aborted here")
        if kind != "Bearer" or not hmac.compare_digest(given.strip().encode(), self._token.encode()):
            raise HTTPException(401, "that is not the token")
        stage = self._board.stage
        if stage.look() is None or stage.run_dir is None:
            raise HTTPException(409, "no run goes on")
        ask_to_abort(stage.run_dir, "from the page")
        return JSONResponse({"run": stage.run_dir.name}, headers=HEADERS)

    async def report(self, request: Request) -> Response:
        run, name = request.path_params["run"], request.path_params["file"]
        path = self._runs / run / name
        if name not in PUBLISHED or run != Path(run).name or run.startswith(".") or not path.is_file():
            raise HTTPException(404, "there is no such report")
        # A report has a policy of its own.
        return FileResponse(path, headers={"X-Content-Type-Options": "nosniff"})

    async def trends(self, _: Request) -> Response:
        def made() -> str:
            rows = past.rows(self._runs)
            found = judged(series_of(rows), ALPHA, RECENT, None)
            return render("trends.html.j2", **trends_view(found, coverage_rows(rows, self._applying()), ALPHA))

        return HTMLResponse(await asyncio.to_thread(made), headers={"X-Content-Type-Options": "nosniff"})

    async def state(self, _: Request) -> Response:
        return JSONResponse(self._board.stage.look(), headers=HEADERS)


async def _refused(_: Request, error: Any) -> Response:
    return JSONResponse({"error": error.detail}, status_code=error.status_code, headers=HEADERS)


async def _failed(_: Request, error: Any) -> Response:
    return JSONResponse({"error": str(error)}, status_code=500, headers=HEADERS)
