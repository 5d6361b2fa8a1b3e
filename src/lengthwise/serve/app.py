"""The application: its addresses, templates and error pages. All of them only read."""

import hashlib
import threading
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

import lengthwise
from lengthwise.analysis.intervals import quantile_normal
from lengthwise.report import bundle
from lengthwise.report.charts.spec import CONFIG
from lengthwise.report.page import CONTROL_CHARACTERS, packed, style
from lengthwise.serve import pages
from lengthwise.serve.comparison import MOST
from lengthwise.serve.guard import REPORT_POLICY, App, Guard
from lengthwise.serve.reports import ReportError, Reports
from lengthwise.serve.snapshots import Watcher
from lengthwise.store import StoreError

if TYPE_CHECKING:
    from jinja2 import Environment

HERE = Path(__file__).parent


@cache
def _file(name: str) -> str:
    return (HERE / name).read_text(encoding="utf-8")


FILES: dict[str, tuple[str, Callable[[], str]]] = {  # what the pages load: media type and content
    "style.css": ("text/css", lambda: style() + _file("serve.css")),
    "serve.js": ("text/javascript", lambda: _file("serve.js")),
    "vega.js": ("text/javascript", bundle.script),
}


def application(watcher: Watcher, reports: Reports, host: str, port: int, token: str | None = None) -> App:
    """Return the application for a server that listens at `host` and `port`. With a `token`, it answers only who has it."""
    site = _Site(watcher, reports)
    for file in HERE.glob("*.j2"):
        _templates().get_template(file.name)  # compiled now, so that the first request is as quick as the others
    quantile_normal()
    threading.Thread(target=_served, args=("vega.js",), daemon=True).start()
    routes = [
        Route("/", site.studies),
        Route("/study", site.study),
        Route("/compare", site.compare),
        Route("/report", site.report),
        Route("/files/{name}", site.file),
    ]
    handlers: dict[Any, Any] = {StoreError: site.unreadable, HTTPException: site.refused}
    return Guard(Starlette(routes=routes, exception_handlers=handlers), host, port, token)


class _Site:
    """The pages. Each is made in a thread, so that none waits for another."""

    def __init__(self, watcher: Watcher, reports: Reports):
        self.watcher, self.reports = watcher, reports

    async def studies(self, request: Request) -> Response:
        return await run_in_threadpool(self._studies, request)

    async def study(self, request: Request) -> Response:
        return await run_in_threadpool(self._study, request)

    async def compare(self, request: Request) -> Response:
        return await run_in_threadpool(self._compare, request)

    async def report(self, request: Request) -> Response:
        return await run_in_threadpool(self._report, request)

    async def file(self, request: Request) -> Response:
        return await run_in_threadpool(self._named_file, request)

    def _studies(self, request: Request) -> Response:
        keys = _keys(request)
        return _page(request, "studies.html.j2", keys, title="Studies", **pages.studies(self.watcher.snapshot(), keys))

    def _study(self, request: Request) -> Response:
        keys, query = _keys(request), request.query_params
        name, page = query.get("name", ""), query.get("page", "1")
        number = int(page) if page.isascii() and page.isdigit() and len(page) < 7 else 1
        try:
            data = pages.study(self.watcher, self.watcher.snapshot(), name, number, query.get("words", "")[:200], keys)
        except KeyError as error:
            raise HTTPException(404, error.args[0]) from None
        return _page(request, "study.html.j2", keys, title=name, **data)

    def _compare(self, request: Request) -> Response:
        keys = _keys(request)
        try:
            data = pages.compare(self.watcher, self.watcher.snapshot(), keys)
        except KeyError as error:
            raise HTTPException(404, error.args[0]) from None
        return _page(request, "compare.html.j2", keys, title="Runs side by side", **data)

    def _report(self, request: Request) -> Response:
        name = request.query_params.get("study", "")
        try:
            pages.state_of(self.watcher.snapshot(), name)
        except KeyError as error:
            raise HTTPException(404, error.args[0]) from None
        try:
            text = self.reports.get(name, self.watcher.read(lambda store: store.fingerprint(name)))
        except ReportError as error:
            raise HTTPException(503, str(error)) from None
        if text is not None:
            headers = {"content-security-policy": REPORT_POLICY, "cache-control": "no-store"}
            return Response(text, media_type="text/html", headers=headers)
        return _page(request, "waiting.html.j2", (), 202, title=f"Report of {name}", name=name)

    def _named_file(self, request: Request) -> Response:
        name = request.path_params["name"]
        if name not in FILES:
            raise HTTPException(404, "there is no such file")
        media_type, content, tag = _served(name)
        headers = {"etag": tag, "cache-control": "private, no-cache"}
        if request.headers.get("if-none-match") == tag:
            return Response(status_code=304, headers=headers)
        return Response(content, media_type=media_type, headers=headers)

    async def unreadable(self, request: Request, error: Exception) -> Response:
        line = f"The results cannot be read now: {error}. This page tries again every two seconds."
        return await run_in_threadpool(_page, request, "message.html.j2", (), 503, title="No results", line=line)

    async def refused(self, request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        if error.status_code == 405:
            return PlainTextResponse("these pages can only be read\n", 405, headers=error.headers)
        line = f"{error.detail[:1].upper()}{error.detail[1:]}."
        return await run_in_threadpool(
            _page, request, "message.html.j2", (), error.status_code, title="Not shown", line=line
        )


def _keys(request: Request) -> list[str]:
    """Return the keys of the chosen runs. Raises `HTTPException` for too many."""
    keys = list(dict.fromkeys(key for key in request.query_params.get("runs", "").split(",") if key))
    if len(keys) > MOST:
        raise HTTPException(400, f"at most {MOST} runs are shown side by side, got {len(keys)}; choose fewer")
    return keys


def _page(request: Request, template: str, chosen: Sequence[str], status: int = 200, **data: Any) -> Response:
    """Render a page. A browser that has the same one already gets an empty answer, because it asks every two seconds."""
    text = (
        _templates()
        .get_template(template)
        .render(
            chosen=chosen,
            most=MOST,
            home=pages.address("/", runs=",".join(chosen)),
            compare=pages.address("/compare", runs=",".join(chosen)),
            version=lengthwise.__version__,
            config=CONFIG,
            **data,
        )
    )
    content = CONTROL_CHARACTERS.sub("\ufffd", text).encode("utf-8", "backslashreplace")
    tag = _tag(content)
    headers = {"etag": tag, "cache-control": "no-store"}
    if status == 200 and request.headers.get("if-none-match") == tag:
        return Response(status_code=304, headers=headers)
    return Response(content, status, media_type="text/html", headers=headers)


@cache
def _served(name: str) -> tuple[str, bytes, str]:
    media_type, make = FILES[name]
    content = make().encode()
    return media_type, content, _tag(content)


def _tag(content: bytes) -> str:
    return f'"{hashlib.sha256(content).hexdigest()[:32]}"'


@cache
def _templates() -> "Environment":
    import jinja2
    from markupsafe import Markup

    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(_file),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["packed"] = lambda data: Markup(packed(data))
    return environment
