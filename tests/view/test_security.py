"""Who is answered."""

import pytest
from starlette.testclient import TestClient

from ragen.view.security import COOKIE, content_security_policy, is_loopback
from ragen.view.server import guarded


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.1:7860", "localhost:1", "LOCALHOST", "[::1]:7860", "[::1]"])
def test_this_machine_is_answered_by_its_names(client, host):
    assert client.get("/api/runs", headers={"host": host}).status_code == 200


@pytest.mark.parametrize(
    "host", ["evil.com", "evil.com:7860", "127.0.0.1.evil.com", "10.0.0.1", "", "[", "localhost@x"]
)
def test_a_name_that_somebody_else_owns_is_refused(client, host):
    response = client.get("/api/runs", headers={"host": host})
    assert response.status_code == 403
    assert "ragen view" in response.text


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "http://evil.com"},
        {"origin": "null"},
        {"origin": "https://127.0.0.1"},
        {"origin": "http://127.0.0.1:81"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site", "sec-fetch-mode": "cors"},
        {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate", "sec-fetch-dest": "iframe"},
        {"sec-fetch-site": "cross-site", "sec-fetch-mode": "no-cors", "sec-fetch-dest": "script"},
    ],
)
def test_another_site_reads_nothing(client, headers):
    assert client.get("/api/runs", headers=headers).status_code == 403


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"origin": "http://127.0.0.1"},
        {"sec-fetch-site": "same-origin"},
        {"sec-fetch-site": "none", "sec-fetch-mode": "navigate", "sec-fetch-dest": "document"},
        {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate", "sec-fetch-dest": "document"},  # a link
    ],
)
def test_the_page_itself_and_links_to_it_are_answered(client, headers):
    assert client.get("/api/runs", headers=headers).status_code == 200


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"])
def test_nothing_can_be_changed(client, method):
    assert client.request(method, "/api/runs").status_code == 405


@pytest.mark.parametrize(
    ("changes", "status"),
    [
        ({}, 200),
        ({"content-type": "application/json; charset=utf-8", "sec-fetch-site": "same-origin"}, 200),
        ({"origin": ""}, 403),
        ({"origin": "http://evil.com"}, 403),
        ({"origin": "null"}, 403),
        ({"origin": "http://127.0.0.1:81"}, 403),
        ({"sec-fetch-site": "cross-site"}, 403),
        ({"sec-fetch-site": "none"}, 403),
        ({"host": "evil.com", "origin": "http://evil.com"}, 403),
        ({"content-type": "text/plain"}, 415),
        ({"content-type": "application/x-www-form-urlencoded"}, 415),
        ({"content-type": ""}, 415),
    ],
)
def test_only_the_page_itself_plays(client, changes, status):
    headers = {"origin": "http://127.0.0.1", "content-type": "application/json"} | changes
    body = b'{"tag": "Bandit", "seed": 1}'
    assert client.post("/api/play/start", content=body, headers=headers).status_code == status


@pytest.mark.parametrize("path", ["/api/play", "/api/playing", "/api/play/../runs", "/api/runs", "/"])
def test_nothing_else_takes_a_post(client, path):
    headers = {"origin": "http://127.0.0.1"}
    assert client.post(path, json={}, headers=headers).status_code == 405


def test_playing_needs_the_token_too(tmp_path):
    with TestClient(guarded([tmp_path], host="0.0.0.0", token="t"), base_url="http://10.0.0.5") as client:
        headers, body = {"origin": "http://10.0.0.5"}, {"tag": "Bandit", "seed": 1}
        assert client.post("/api/play/start", json=body, headers=headers).status_code == 401
        headers["authorization"] = "Bearer t"
        assert client.post("/api/play/start", json=body, headers=headers).status_code == 200


@pytest.mark.parametrize("path", ["/", "/api/runs", "/nope", "/assets/nope.js"])
def test_every_answer_carries_the_policy(client, path):
    headers = client.get(path).headers
    assert "default-src 'none'" in headers["content-security-policy"]
    assert (headers["x-content-type-options"], headers["x-frame-options"]) == ("nosniff", "DENY")
    assert "access-control-allow-origin" not in headers
    refused = client.get(path, headers={"host": "evil.com"}).headers
    assert "default-src 'none'" in refused["content-security-policy"]


def test_nothing_that_stands_in_the_page_runs():
    policy = content_security_policy(["sha256-abc="])
    assert "script-src 'self' 'sha256-abc=';" in policy
    assert "unsafe" not in policy
    assert "require-trusted-types-for 'script'" in policy


def test_other_addresses_need_the_token(tmp_path):
    app = guarded([tmp_path], host="0.0.0.0", token="secret")
    with TestClient(app, base_url="http://10.0.0.5", follow_redirects=False) as client:
        for wrong in ("/api/runs", "/", "/?token=", "/?token=secre", "/api/runs?token=sécret", "/api/runs?token=%ff"):
            assert client.get(wrong).status_code == 401
        assert client.get("/api/runs", headers={"authorization": "Bearer secret"}).status_code == 200
        assert client.get("/api/runs", headers={"cookie": f"{COOKIE}=wrong"}).status_code == 401
        assert (
            client.get("/api/runs", headers={"host": "evil.com", "authorization": "Bearer secret"}).status_code == 403
        )
        welcome = client.get("/?token=secret&x=1")
        assert (welcome.status_code, welcome.headers["location"]) == (303, "/?x=1")
        assert "HttpOnly" in welcome.headers["set-cookie"]
        assert client.get("/api/runs").status_code == 200


def test_the_token_sends_nobody_to_another_site(tmp_path):
    with TestClient(guarded([tmp_path], host="0.0.0.0", token="t"), base_url="http://10.0.0.5") as client:
        answer = client.get("http://10.0.0.5//evil.com/?token=t", follow_redirects=False)
        assert answer.headers["location"] == "/evil.com/"


def test_web_sockets_are_refused(client):
    with pytest.raises(Exception), client.websocket_connect("/"):  # noqa: B017
        pass


def test_loopback_is_this_machine():
    assert all(map(is_loopback, ("127.0.0.1", "127.3.4.5", "::1", "localhost")))
    assert not any(map(is_loopback, ("0.0.0.0", "::", "10.0.0.1", "example.org")))
