"""Listen at an address and answer until Ctrl-C."""

import errno
import socket
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from lengthwise.values import ConfigError

if TYPE_CHECKING:
    from lengthwise.serve.guard import App

SWITCH = 0.0005  # seconds for which a thread may compute before another one does
GRACE = 1  # seconds that open requests have after Ctrl-C


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that listens at an address. Raises `ConfigError` in one line if it cannot."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ConfigError(
            f"--host {host} is not an address of this machine ({reason}); use 127.0.0.1, or 0.0.0.0 for all"
        ) from None
    found = socket.socket(family, kind, protocol)
    try:
        if sys.platform != "win32":  # there, it would let two programs share the port
            found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.bind(address)
        found.listen(128)
    except OSError as error:
        found.close()
        if error.errno == errno.EADDRINUSE:
            raise ConfigError(
                f"port {port} of {host} is in use by another program; choose another one with --port, or --port 0 for a free one"
            ) from None
        if error.errno in (errno.EACCES, errno.EPERM):
            raise ConfigError(
                f"port {port} may not be used by this user; choose one from 1024 on with --port"
            ) from None
        raise ConfigError(
            f"cannot listen at {host}, port {port} ({error.strerror}); give an address of this machine with --host"
        ) from None
    return found


def address_of(host: str, port: int, token: str | None) -> str:
    """Return the address to open in a browser."""
    name = {"0.0.0.0": socket.gethostname(), "::": socket.gethostname()}.get(host, f"[{host}]" if ":" in host else host)
    return f"http://{name}:{port}/" + (f"?token={quote(token, safe='')}" if token is not None else "")


def answer(listening: socket.socket, app: "App", started: Callable[[], None]) -> None:
    """Answer requests until SIGINT or SIGTERM, which is raised again at the end. `started`: called when the server answers."""
    import uvicorn

    class Server(uvicorn.Server):
        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets=sockets)
            started()

    # The thread that reads the store and those that answer take turns. SQLite gives the turn away at every row, and would then wait
    # for 5 ms for the next one.
    sys.setswitchinterval(SWITCH)
    application: Any = app
    config = uvicorn.Config(
        application,
        log_level="warning",
        access_log=False,
        server_header=False,
        lifespan="off",
        ws="none",
        proxy_headers=False,
        timeout_graceful_shutdown=GRACE,
    )
    Server(config).run(sockets=[listening])
