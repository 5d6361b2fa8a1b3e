"""What happens beside training: signs of life for the store, and new files for a results folder at an address."""

import threading

from lengthwise.store import ResultsFolder, Store, StoreError, StoreGone
from lengthwise.studies.events import Note
from lengthwise.studies.parent import Parent, when_reachable

HEARTBEAT_SECONDS = 5.0  # the store considers a worker dead after 60 s without a heartbeat
SEND_SECONDS = 1.0  # between two looks for new files
RETRY_SECONDS = 30.0  # after files could not be sent


class Heartbeat:
    """A thread that tells the store that the worker is alive, and its training step."""

    def __init__(self, store: Store, key: str, worker: str):
        self.step = self.steps = 0
        self.lost = False
        self._store, self._key, self._worker = store, key, worker
        self._finished = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> "Heartbeat":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._finished.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._finished.wait(HEARTBEAT_SECONDS):
            try:
                self.lost = not self._store.heartbeat(self._key, self._worker, self.step, self.steps)
                self._store.disconnect()
            except StoreGone:  # further training could not be stored
                self.lost = True
            except StoreError:  # a failed heartbeat is harmless, because many follow before the worker counts as dead
                pass
            if self.lost:
                return


class Sender:
    """A thread that sends the new files of a run to a results folder at an address, while the run is trained and
    evaluated.

    Training does not wait for it, and continues while the address cannot be reached. At the end everything is sent:
    after a success the worker waits until that is possible; otherwise one attempt is made, and what was not sent stays
    on this machine.
    """

    def __init__(self, files: ResultsFolder, key: str, parent: Parent, heartbeat: Heartbeat):
        self._files, self._key, self._parent, self._heartbeat = files, key, parent, heartbeat
        self._problem: str | None = None
        self._is_noted = False
        self._finished = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> "Sender":
        if self._files.is_remote:
            self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._finished.set()
        if self._files.is_remote:
            self._thread.join()
        if self._heartbeat.lost:
            return
        if kind is None:
            when_reachable(self._parent, self._files.send, self._key)
            return
        try:
            self._files.send(self._key)
        except StoreError as error:
            self._note(f"{error}; the progress of the run stays on this machine")

    def note_problem(self) -> None:
        """Tell the parent once that files could not be sent. Only the worker's main thread may do so."""
        if self._problem is not None and not self._is_noted:
            self._is_noted = True
            self._note(f"{self._problem.partition(';')[0]}; training continues, and its files are sent later")

    def _note(self, text: str) -> None:
        self._parent.send(Note(key=self._key, text=text))

    def _run(self) -> None:
        pause = SEND_SECONDS
        while not self._finished.wait(pause) and not self._heartbeat.lost:
            try:
                self._files.send(self._key)
                pause = SEND_SECONDS
            except Exception as error:  # the last attempt, in `__exit__`, raises it again
                self._problem, pause = str(error), RETRY_SECONDS
