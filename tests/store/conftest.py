"""A store on each database."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from sqlalchemy import create_engine, text

from lengthwise.store import Store, open_store
from lengthwise.store.schema import tables
from tests.made_answers import score_answer, training_answer
from tests.postgres_server import needs_postgres, postgres

__all__ = ["postgres"]


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=[needs_postgres, pytest.mark.medium])])
def where(request: pytest.FixtureRequest, tmp_path: Any) -> str:
    """Where an empty store can be opened."""
    return empty_store(request, tmp_path)


def empty_store(request: pytest.FixtureRequest, tmp_path: Any) -> str:
    """Where an empty store of the kind in `request.param` can be opened."""
    if request.param == "sqlite":
        return str(tmp_path / "results")
    url: str = request.getfixturevalue("postgres")
    engine = create_engine(url.replace("postgresql://", "postgresql+psycopg://"))
    tables.drop_all(engine)
    engine.dispose()
    return url


@pytest.fixture
def store(where: str) -> Iterator[Store]:
    with open_store(where, timeout=10) as opened:
        yield opened


@pytest.fixture
def silence(store: Store) -> Callable[[str, float], None]:
    """Make a run's worker look as if it had not been heard of for some seconds."""

    def silence(key: str, seconds: float) -> None:
        with store._database.engine.begin() as connection:
            done = connection.execute(
                text("UPDATE runs SET heartbeat = heartbeat - :s WHERE key = :k"), {"s": seconds, "k": key}
            )
            assert done.rowcount == 1

    return silence


def run_data(key: str, lengths: tuple[int, ...] = (8, 16), **change: Any) -> dict[str, Any]:
    """A run as a study hands it over."""
    return {
        "key": key,
        "label": "FIRE(hidden_layers=1)",
        "encoding": "FIRE",
        "task": "Copy",
        "metric": "exact match",
        "better": "higher",
        "unit": "symbols",
        "seed": 0,
        "train_length": 8,
        "config": {"encoding": {"is": "FIRE"}, "seed": 0},
        "questions": [question(length) for length in lengths],
        **change,
    }


def question(length: int) -> dict[str, Any]:
    return {"length": length, "examples": 256, "seed": 0}


def score(length: int, mean: float = 0.5, **change: Any) -> dict[str, Any]:
    return score_answer(change.pop("question", question(length)), mean, **change)


def point(step: int, loss: float = 1.0) -> dict[str, Any]:
    return {"step": step, "loss": loss, "learning_rate": 1e-3, "gradient_norm": 0.5, "tokens_per_second": 9000.0}


def curve(*points: dict[str, Any]) -> dict[str, Any]:
    return training_answer(points)


@pytest.fixture
def make() -> Any:
    """The builders above, such as `make.run("ab00000000000000")` and `make.curve(make.point(10))`."""

    class Make:
        run = staticmethod(run_data)
        score = staticmethod(score)
        point = staticmethod(point)
        curve = staticmethod(curve)
        question = staticmethod(question)

    return Make
