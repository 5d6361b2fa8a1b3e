"""The application: its addresses, templates and error pages. All of them only read."""

import hashlib
import threading
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

import lengthwise
from lengthwise.analysis import findings
from lengthwise.report import bundle, render
from lengthwise.report.page import CONTROL_CHARACTERS, charts_script, style, templates
from lengthwise.serve import pages
from lengthwise.serve.comparison import MOST
from lengthwise.serve.snapshots import Watcher
from lengthwise.store import StoreError

if TYPE_CHECKING:
    from jinja2 import Environment

# Another web site can lead a browser here under a name of its own (DNS rebinding), so only the names of this machine
# are served.
ALLOWED_HOSTS = ["localhost", "127.0.0.1"]
POLICY = "default-src 'self'; img-src data:"  # no script inside a page is executed; the report has a policy of its own
HERE = Path(__file__).parent


@cache
def _file(name: str) -> str:
    return (HERE / name).read_text(encoding="utf-8")


FILES: dict[str, tuple[str, Callable[[], str]]] = {  # what the pages load: media type and content
    "style.css": ("text/css", lambda: style() + _file("serve.css")),
    "charts.js": ("text/javascript", charts_script),
    "serve.js": ("text/javascript", lambda: _file("serve.js")),
    "vega.js": ("text/javascript", bundle.script),
}


def application(watcher: Watcher) -> Starlette:
    """Return the application that shows what `watcher` reads."""
    site = _Site(watcher)
    for file in HERE.glob("*.j2"):
        _templates().get_template(file.name)  # compiled now, so that the first request is as quick as the others
    threading.Thread(target=_served, args=("vega.js",), daemon=True).start()
    return Starlette(
        routes=[
            Route("/", site.studies),
            Route("/study", site.study),
            Route("/compare", site.compare),
            Route("/report", site.report),
            Route("/files/{name}", site.file),
        ],
        middleware=[Middleware(TrustedHostMiddleware, allowed_hosts=ALLOWED_HOSTS, www_redirect=False)],
        exception_handlers={StoreError: site.unreadable, HTTPException: site.not_shown},
    )


class _Site:
    """The pages. Starlette calls each method in a thread, so no page waits for another."""

    def __init__(self, watcher: Watcher):
        self.watcher = watcher
        self._reports: dict[str, tuple[object, bytes]] = {}  # of each study: the state of its rows, and the page
        self._reporting = threading.Lock()

    def studies(self, request: Request) -> Response:
        keys = _keys(request)
        return _page(request, "studies.html.j2", keys, title="Studies", **pages.studies(self.watcher.snapshot(), keys))

    def study(self, request: Request) -> Response:
        keys, query = _keys(request), request.query_params
        name, page = query.get("name", ""), query.get("page", "1")
        number = int(page) if page.isdecimal() else 1
        try:
            data = pages.study(self.watcher, self.watcher.snapshot(), name, number, query.get("words", ""), keys)
        except KeyError as error:
            raise HTTPException(404, error.args[0]) from None
        return _page(request, "study.html.j2", keys, title=name, **data)

    def compare(self, request: Request) -> Response:
        keys = _keys(request)
        try:
            data = pages.compare(self.watcher, self.watcher.snapshot(), keys)
        except KeyError as error:
            raise HTTPException(404, error.args[0]) from None
        return _page(request, "compare.html.j2", keys, title="Runs side by side", **data)

    def report(self, request: Request) -> Response:
        """Return the full report of a study. One is rendered at a time, because a large one takes seconds."""
        name = request.query_params.get("study", "")
        try:
            pages.state_of(self.watcher.snapshot(), name)
        except KeyError as error:
            raise HTTPException(404, error.args[0]) from None
        with self._reporting:
            state = self.watcher.read(lambda store: store.fingerprint(name))
            if name not in self._reports or self._reports[name][0] != state:
                page = render(self.watcher.read(lambda store: findings(store, name)))
                self._reports[name] = state, page.encode("utf-8", "backslashreplace")
            return Response(self._reports[name][1], media_type="text/html", headers={"cache-control": "no-store"})

    def file(self, request: Request) -> Response:
        name = request.path_params["name"]
        if name not in FILES:
            raise HTTPException(404, "there is no such file")
        media_type, content, tag = _served(name)
        headers = {"etag": tag, "cache-control": "private, no-cache"}
        if request.headers.get("if-none-match") == tag:
            return Response(status_code=304, headers=headers)
        return Response(content, media_type=media_type, headers=headers)

    def unreadable(self, request: Request, error: Exception) -> Response:
        line = f"The results cannot be read now: {error}. This page tries again every two seconds."
        return _page(request, "message.html.j2", (), 503, title="No results", line=line)

    def not_shown(self, request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        line = f"{error.detail[:1].upper()}{error.detail[1:]}."
        return _page(request, "message.html.j2", (), error.status_code, title="Not shown", line=line)


def _keys(request: Request) -> list[str]:
    """Return the keys of the chosen runs. Raises `HTTPException` for too many."""
    keys = list(dict.fromkeys(key for key in request.query_params.get("runs", "").split(",") if key))
    if len(keys) > MOST:
        raise HTTPException(400, f"at most {MOST} runs are shown side by side, got {len(keys)}; choose fewer")
    return keys


def _page(request: Request, template: str, chosen: Sequence[str], status: int = 200, **data: Any) -> Response:
    """Render a page. A browser that has it already gets an empty answer, because it asks every two seconds."""
    text = (
        _templates()
        .get_template(template)
        .render(
            chosen=chosen,
            most=MOST,
            home=pages.address("/", runs=",".join(chosen)),
            compare=pages.address("/compare", runs=",".join(chosen)),
            version=lengthwise.__version__,
            **data,
        )
    )
    content = CONTROL_CHARACTERS.sub("\ufffd", text).encode("utf-8", "backslashreplace")
    tag = _tag(content)
    headers = {"etag": tag, "cache-control": "no-store", "content-security-policy": POLICY}
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
    return templates(_file)
