"""`lengthwise serve`: a live page on the results."""

from lengthwise.cli.options import Integer, Place
from lengthwise.values import ConfigError, install_extra


def command(*, port: Integer = 8090, place: Place = Place()) -> int:
    """Show the results in a browser: progress while studies run, runs of any studies side by side, and what differs
    between them.

    The page only reads: it cannot start, stop or delete a run. It is served until Ctrl-C, to this machine only.

    Example: lengthwise serve; lengthwise serve --port 8091 --results RESULTS

    Args:
        port: Port to listen on; 0 for a free one.
    """
    if not 0 <= port <= 65535:
        raise ConfigError(f"--port must be from 0 to 65535, got {port}")
    try:
        import starlette
        import uvicorn
    except ModuleNotFoundError as error:
        raise ConfigError(f"the package {error.name} is missing; {install_extra('serve')}") from None
    del starlette, uvicorn
    from lengthwise.serve.app import application
    from lengthwise.serve.server import HOST, answer, listen
    from lengthwise.serve.snapshots import Watcher

    with listen(port) as listening:
        watcher = Watcher(place.open)
        try:
            app = application(watcher)
            print(f"Results: http://{HOST}:{listening.getsockname()[1]}/ (stop with Ctrl-C)", flush=True)
            answer(listening, app)
        except KeyboardInterrupt as interrupt:
            interrupt.hint = "the results are unchanged"  # type: ignore[attr-defined]
            raise
        finally:
            watcher.close()
    return 0
