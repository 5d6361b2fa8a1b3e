"""Who may see the pages: the names by which a browser may call this server, and the token."""

import hashlib
import hmac
import ipaddress
import secrets
import socket
from collections.abc import Awaitable, Callable, Iterable
from http.cookies import CookieError, SimpleCookie
from typing import Any
from urllib.parse import parse_qsl, quote, urlencode

Scope = dict[str, Any]
App = Callable[[Scope, Any, Any], Awaitable[None]]

LOCAL = ("localhost", "127.0.0.1", "::1")
EVERYWHERE = ("0.0.0.0", "::")  # listening there means: at every address of this machine
HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'self'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}
# The report has its script inside, and its own stricter policy, which lists the hash of that script.
REPORT_POLICY = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'"
)


def is_local(host: str) -> bool:
    """Return whether only programs of this machine reach a server at this address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class Guard:
    """Middleware that answers requests for other hosts and without the token, and adds the headers of all answers.

    Another site can lead a browser here under a name of its own (DNS rebinding), so only our own names are served. The first
    request has the token in its address; then a cookie has it, so that the address does not keep it.
    """

    def __init__(self, app: App, host: str, port: int, token: str | None):
        self.app, self.host, self.token = app, host, token
        self.cookie = f"lengthwise-{port}"  # cookies do not tell ports apart
        self.secret = hmac.new((token or "").encode(), b"cookie", hashlib.sha256).hexdigest()
        self.names = {*LOCAL, host.lower()}
        if host in EVERYWHERE:
            self.names |= {socket.gethostname().lower(), socket.getfqdn().lower()}

    async def __call__(self, scope: Scope, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
        if not self._is_known(headers.get("host", "")):
            line = f"this server is not called {_printable(headers.get('host', ''))}; use the address that lengthwise serve printed"
            await _answer(send, 400, line)
            return
        if self.token is not None:
            query = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
            given = dict(query).get("token")
            if given is not None:
                await self._enter(send, scope["path"], query, given)
                return
            if not secrets.compare_digest(self._sent_cookie(headers.get("cookie", "")), self.secret):
                await _answer(
                    send, 401, "a token is needed; open the address with ?token=... that lengthwise serve printed"
                )
                return

        async def with_headers(message: dict[str, Any]) -> None:
            if message["type"] == "http.response.start":
                present = {name.decode("latin-1").lower() for name, _ in message["headers"]}
                message["headers"] = [
                    *message["headers"],
                    *_raw((n, v) for n, v in HEADERS.items() if n not in present),
                ]
            await send(message)

        await self.app(scope, receive, with_headers)

    async def _enter(self, send: Any, path: str, query: list[tuple[str, str]], given: str) -> None:
        assert self.token is not None
        if not secrets.compare_digest(given.encode(), self.token.encode()):
            await _answer(send, 403, "wrong token; open the address that lengthwise serve printed")
            return
        rest = urlencode([(name, value) for name, value in query if name != "token"])
        location = "/" + quote(path.lstrip("/")) + (f"?{rest}" if rest else "")
        cookie = f"{self.cookie}={self.secret}; HttpOnly; SameSite=Strict; Path=/"
        await _answer(send, 303, "", [("location", location), ("set-cookie", cookie)])

    def _is_known(self, header: str) -> bool:
        name, _, port = header.rpartition(":") if not header.endswith("]") else (header, "", "")
        name = (name if name and port.isdigit() else header).lower().removeprefix("[").removesuffix("]").rstrip(".")
        if name in self.names:
            return True
        if self.host not in EVERYWHERE:
            return False
        try:  # an address is not a name that somebody else could have chosen
            ipaddress.ip_address(name)
        except ValueError:
            return False
        return True

    def _sent_cookie(self, header: str) -> str:
        try:
            found = SimpleCookie(header).get(self.cookie)
        except CookieError:
            return ""
        value = found.value if found is not None else ""
        return value if value.isascii() else ""


def _printable(text: str) -> str:
    return "".join(c if c.isprintable() and c.isascii() else "?" for c in text[:80]) or "that"


def _raw(headers: Iterable[tuple[str, str]]) -> list[tuple[bytes, bytes]]:
    return [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers]


async def _answer(send: Any, status: int, line: str, headers: Iterable[tuple[str, str]] = ()) -> None:
    body = f"{line}\n".encode() if line else b""
    sent = [
        ("content-type", "text/plain; charset=utf-8"),
        ("content-length", str(len(body))),
        *HEADERS.items(),
        *headers,
    ]
    await send({"type": "http.response.start", "status": status, "headers": _raw(sent)})
    await send({"type": "http.response.body", "body": body})
