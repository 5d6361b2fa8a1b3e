"""Listen on this machine and answer until Ctrl-C."""

import os
import socket
import sys
from typing import TYPE_CHECKING

from lengthwise.values import ConfigError

if TYPE_CHECKING:
    from starlette.applications import Starlette

HOST = "127.0.0.1"  # only programs of this machine reach it
SWITCH = 0.0005  # seconds for which a thread may compute before another one does


def listen(port: int) -> socket.socket:
    """Return a socket that listens on this machine. Raise `ConfigError` in one line if it cannot."""
    try:
        return socket.create_server((HOST, port))
    except OSError as error:
        reason = os.strerror(error.errno or 0)
        raise ConfigError(
            f"cannot listen on port {port} of {HOST} ({reason}); choose another one with --port, or --port 0 for a "
            "free one"
        ) from None


def answer(listening: socket.socket, app: "Starlette") -> None:
    """Answer requests until SIGINT or SIGTERM, which is raised again when the pages that were requested are sent."""
    import uvicorn

    # The thread that reads the store and those that answer take turns. SQLite gives the turn away at every row, and
    # would then wait for 5 ms for the next one.
    sys.setswitchinterval(SWITCH)
    config = uvicorn.Config(
        app,
        log_level="warning",
        access_log=False,
        server_header=False,
        lifespan="off",
        ws="none",
        proxy_headers=False,
    )
    uvicorn.Server(config).run(sockets=[listening])
