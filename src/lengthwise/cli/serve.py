"""`lengthwise serve`: a live page on the results."""

import secrets
from typing import Annotated

from cyclopts import Parameter

from lengthwise.cli.options import DEFAULT_PLACE, Integer, Place
from lengthwise.cli.printing import one_line
from lengthwise.values import ConfigError, install_extra

SHORTEST_TOKEN = 8  # characters


def command(
    *,
    host: str = "127.0.0.1",
    port: Integer = 8090,
    token: Annotated[str | None, Parameter(env_var="LENGTHWISE_TOKEN", show_default=False)] = None,
    place: Place = DEFAULT_PLACE,
) -> int:
    """Show the results in a browser: progress while studies run, runs of any studies side by side, and what differs between them.

    The page only reads: it cannot start, stop or delete a run. It is served until Ctrl-C.

    Example: lengthwise serve; lengthwise serve --port 8091 --results RESULTS

    Args:
        host: Address to listen at. An address that other machines can reach, such as 0.0.0.0, requires a token.
        port: Port to listen at; 0 for a free one.
        token: Password that a browser needs to see the page. Other users of this machine can see it on the command line, so set
            the environment variable instead. [default: none for 127.0.0.1, and otherwise a random one, which is printed]
    """
    if not 0 <= port <= 65535:
        raise ConfigError(f"--port must be from 0 to 65535, got {port}")
    if token is not None and (len(token) < SHORTEST_TOKEN or not token.isascii() or not token.isprintable()):
        raise ConfigError(
            f"--token must have at least {SHORTEST_TOKEN} characters, all of them ASCII; omit it for a random one"
        )
    try:
        import starlette
        import uvicorn
    except ModuleNotFoundError as error:
        raise ConfigError(f"the package {error.name} is missing; {install_extra('serve')}") from None
    del starlette, uvicorn
    from lengthwise.serve.app import application
    from lengthwise.serve.guard import is_local
    from lengthwise.serve.reports import Reports
    from lengthwise.serve.server import address_of, answer, listen
    from lengthwise.serve.snapshots import Watcher

    if token is None and not is_local(host):
        token = secrets.token_urlsafe(16)
    with listen(host, port) as listening:
        watcher = Watcher(place.open)
        try:
            reports = Reports(place.variables)
            try:
                number = listening.getsockname()[1]
                page = address_of(host, number, token)
                app = application(watcher, reports, host, number, token)
                answer(listening, app, lambda: print(one_line(f"Results: {page} (stop with Ctrl-C)"), flush=True))
            finally:
                reports.close()
        except KeyboardInterrupt as interrupt:
            interrupt.hint = "the results are unchanged"  # type: ignore[attr-defined]
            raise
        finally:
            watcher.close()
    return 0
