"""Who may see the pages."""

from typing import Any

import pytest

from lengthwise.serve.guard import is_local
from lengthwise.serve.reports import Reports
from lengthwise.serve.snapshots import Watcher

from .conftest import new_client

TOKEN = "correct horse"


@pytest.fixture
def closed(watcher: Watcher, reports: Reports) -> Any:
    return new_client(watcher, reports, "0.0.0.0", TOKEN)


def test_without_the_token_nothing_is_shown(closed: Any) -> None:
    for address in ("/", "/study?name=first", "/compare", "/report?study=first", "/files/style.css", "/nothing"):
        answer = closed.get(address)
        assert answer.status_code == 401
        assert answer.text.startswith("a token is needed;")
        assert answer.text.count("\n") == 1
    for cookie in (b"lengthwise-8090=", b"lengthwise-8090=x", b"lengthwise-8090=\xc3\xa9", b";=;", b"x=" + b"y" * 5000):
        assert closed.get("/", headers={b"Cookie": cookie}).status_code == 401


def test_a_wrong_token_is_refused(closed: Any) -> None:
    for wrong in ("", "x", TOKEN[:-1], TOKEN + "x", "é", "%ff"):
        answer = closed.get("/", params={"token": wrong})
        assert (answer.status_code, answer.text.count("\n")) == (403, 1)
        assert answer.text.startswith("wrong token;")
        assert "set-cookie" not in answer.headers


def test_the_address_does_not_keep_the_token(closed: Any) -> None:
    answer = closed.get("/study", params={"name": "first", "token": TOKEN}, follow_redirects=False)
    assert (answer.status_code, answer.headers["location"]) == (303, "/study?name=first")
    cookie = answer.headers["set-cookie"]
    assert cookie.endswith("; HttpOnly; SameSite=Strict; Path=/")
    assert TOKEN not in cookie
    assert "correct" not in cookie
    page = closed.get("/study?name=first")
    assert page.status_code == 200
    assert "correct" not in page.text


def test_a_token_never_leads_to_another_site(closed: Any) -> None:
    for path in ("//evil.example/", "/\\evil.example", "///evil.example"):
        answer = closed.get(f"http://127.0.0.1:8090{path}", params={"token": TOKEN}, follow_redirects=False)
        assert answer.headers["location"][:1] == "/"
        assert answer.headers["location"][1:2] not in ("/", "\\")


@pytest.mark.parametrize(
    ("host", "header", "known"),
    [
        ("127.0.0.1", "127.0.0.1:8090", True),
        ("127.0.0.1", "localhost:9999", True),
        ("127.0.0.1", "[::1]:8090", True),
        ("127.0.0.1", "LOCALHOST", True),
        ("127.0.0.1", "evil.example", False),
        ("127.0.0.1", "127.0.0.1.evil.example:8090", False),
        ("127.0.0.1", "10.0.0.7:8090", False),
        ("127.0.0.1", "", False),
        ("lab.example", "lab.example:8090", True),
        ("0.0.0.0", "10.0.0.7:8090", True),
        ("0.0.0.0", "[fe80::1]:8090", True),
        ("0.0.0.0", "evil.example:8090", False),
    ],
)
def test_only_our_own_names_are_served(watcher: Watcher, reports: Reports, host: str, header: str, known: bool) -> None:
    answer = new_client(watcher, reports, host).get("/", headers={"Host": header})
    assert answer.status_code == (200 if known else 400)
    if not known:
        assert "Studies" not in answer.text
        assert answer.text.count("\n") == 1


def test_every_answer_has_a_strict_policy(client: Any, closed: Any) -> None:
    answers = [client.get(address) for address in ("/", "/nothing", "/files/serve.js", "/compare")]
    for answer in [*answers, closed.get("/"), client.get("/", headers={"Host": "evil.example"})]:
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'; script-src 'self'; style-src 'self'" in policy
        assert "unsafe" not in policy
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["referrer-policy"] == "no-referrer"


def test_addresses_of_this_machine_alone() -> None:
    assert all(map(is_local, ("127.0.0.1", "::1", "localhost", "127.8.9.1")))
    assert not any(map(is_local, ("0.0.0.0", "::", "192.168.0.1", "lab.example", "")))
