"""The built-in text's cache of the tests is their own."""

from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True, scope="session")
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LENGTHWISE_CACHE", str(tmp_path_factory.getbasetemp() / "cache"))
        yield
