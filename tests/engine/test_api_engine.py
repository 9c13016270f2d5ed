"""The API engine against a real HTTP server on this machine."""

import base64
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import quote

import pytest

from ragen.engine.api import engine as api
from ragen.engine.api import protocol as api_protocol
from ragen.engine.api.engine import ApiEngine, chat_endpoint
from ragen.engine.api.key import Secret
from ragen.engine.base import Completion, Request, SamplingParams, StopReason
from ragen.errors import ConfigError, EngineError

KEY = "sk-secret-of-the-tests"

Answer = tuple[int, dict[str, str], bytes]


class ChatServer:
    """Answers each POST with `answer(body)`, and remembers what came in."""

    def __init__(self) -> None:
        self.answer: Callable[[dict[str, Any]], Answer] = lambda body: chat("Up")
        self.bodies: list[dict[str, Any]] = []
        self.keys: list[str | None] = []
        self.paths: list[str] = []
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                server.bodies.append(body)
                server.keys.append(self.headers["Authorization"])
                server.paths.append(self.path)
                status, headers, content = server.answer(body)
                try:
                    self.send_response(status)
                    for name, value in ({"Content-Length": str(len(content))} | headers).items():
                        self.send_header(name, value)
                    self.end_headers()
                    self.wfile.write(content)
                except (BrokenPipeError, ConnectionResetError):
                    pass  # the client gave up, as some tests want

            def log_message(self, format: str, *args: Any) -> None: ...

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.http.server_address[1]}/v1"

    def answers(self, *answers: Answer) -> None:
        """The given answers one after another, the last one for ever."""
        left = list(answers)
        self.answer = lambda body: left.pop(0) if len(left) > 1 else left[0]


def chat(text: str | None, *, finish_reason: str = "stop", **extra: Any) -> Answer:
    choice = {"message": {"role": "assistant", "content": text}, "finish_reason": finish_reason} | extra
    return (200, {}, json.dumps({"choices": [choice]}).encode())


def refusal(status: int, message: str, **headers: str) -> Answer:
    return (status, headers, json.dumps({"error": {"message": message}}).encode())


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[ChatServer]:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    server = ChatServer()
    thread = threading.Thread(target=server.http.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    yield server
    server.http.shutdown()
    server.http.server_close()


def request(session: int = 0, *, seed: int = 7, max_tokens: int = 20, **params: Any) -> Request:
    return Request(
        session=session,
        prompt_ids=[],
        messages=[{"role": "user", "content": f"board {session}"}],
        params=SamplingParams(max_tokens=max_tokens, **params),
        seed=seed,
    )


def engine_for(server: ChatServer, **options: Any) -> ApiEngine:
    return ApiEngine("some-model", server.url, **({"backoff_s": 0.01, "timeout_s": 5} | options))


def ask(server: ChatServer, asked: Request | None = None, **options: Any) -> Completion:
    engine = engine_for(server, **options)
    try:
        engine.submit(asked or request())
        [completion] = engine.step()
        return completion
    finally:
        engine.close()


# --- a good answer


def test_a_reply_is_the_text_of_the_first_choice(server: ChatServer):
    completion = ask(server, request(session=3))
    assert completion == Completion(session=3, text="Up", stop_reason=StopReason.STOP_TOKEN)
    assert server.paths == ["/v1/chat/completions"]
    assert server.keys == [f"Bearer {KEY}"]


def test_messages_and_sampling_parameters_are_sent(server: ChatServer):
    ask(server, request(2, seed=2**63 + 5, temperature=0.5, top_p=0.9, max_tokens=8, stop_strings=("</answer>",)))
    assert server.bodies == [
        {
            "model": "some-model",
            "messages": [{"role": "user", "content": "board 2"}],
            "temperature": 0.5,
            "top_p": 0.9,
            "max_tokens": 8,
            "seed": 5,
            "stop": ["</answer>"],
        }
    ]


def test_parameters_at_their_neutral_value_are_not_sent(server: ChatServer):
    ask(server, request(temperature=0, top_k=5))
    assert set(server.bodies[0]) == {"model", "messages", "temperature", "max_tokens", "seed"}


def test_local_servers_need_no_key(server: ChatServer, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("OPENAI_API_KEY")
    monkeypatch.setenv("OPENAI_BASE_URL", server.url)
    engine = ApiEngine("some-model")
    engine.submit(request())
    assert engine.step()[0].text == "Up"
    assert server.keys == [None]
    engine.close()


@pytest.mark.parametrize(
    ("answer", "text", "stop_reason"),
    [
        (chat("<answer>Up", finish_reason="length"), "<answer>Up", StopReason.LENGTH),
        (chat("<answer>Up"), "<answer>Up</answer>", StopReason.STOP_STRING),
        (chat("<answer>Up</answer> and"), "<answer>Up</answer>", StopReason.STOP_STRING),
        (chat("I go up"), "I go up", StopReason.STOP_TOKEN),
        (chat("I go up", stop_reason="</answer>"), "I go up</answer>", StopReason.STOP_STRING),
        (chat("<answer>Up", stop_reason=None), "<answer>Up", StopReason.STOP_TOKEN),
        (chat("<answer>Up", matched_stop=151645), "<answer>Up", StopReason.STOP_TOKEN),
    ],
)
def test_a_reply_ends_with_its_stop_string(server: ChatServer, answer: Answer, text: str, stop_reason: StopReason):
    server.answers(answer)
    completion = ask(server, request(stop_strings=("</answer>",)))
    assert (completion.text, completion.stop_reason) == (text, stop_reason)


def test_half_a_surrogate_pair_can_be_written_to_a_file(server: ChatServer):
    server.answers((200, {}, b'{"choices": [{"message": {"content": "a\\ud800b"}, "finish_reason": "stop"}]}'))
    text = ask(server).text
    assert text is not None
    assert text.encode() == b"a?b"


# --- many requests


def test_requests_run_at_the_same_time(server: ChatServer):
    all_there = threading.Barrier(4, timeout=5)  # passes only when four requests are inside the server at once

    def answer(body: dict[str, Any]) -> Answer:
        all_there.wait()
        return chat(body["messages"][0]["content"])

    server.answer = answer
    engine = engine_for(server, max_concurrency=4)
    for session in range(4):
        engine.submit(request(session))
    completions: list[Completion] = []
    while len(completions) < 4:
        completions += engine.step()
    engine.close()
    assert {c.session: c.text for c in completions} == {session: f"board {session}" for session in range(4)}


def test_no_more_than_max_concurrency_run_and_submit_does_not_wait(server: ChatServer):
    lock, running, most = threading.Lock(), 0, 0
    all_submitted = threading.Event()

    def answer(body: dict[str, Any]) -> Answer:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        assert all_submitted.wait(timeout=5)
        time.sleep(0.02)  # time for a third request to come in, if it could
        with lock:
            running -= 1
        return chat("Up")

    server.answer = answer
    engine = engine_for(server, max_concurrency=2)
    for session in range(6):
        engine.submit(request(session))
    all_submitted.set()
    num_finished = 0
    while num_finished < 6:
        num_finished += len(engine.step())
    engine.close()
    assert most == 2


def test_replies_are_taken_in_the_order_in_which_they_arrive(server: ChatServer):
    third_began = threading.Event()

    def answer(body: dict[str, Any]) -> Answer:
        board = body["messages"][0]["content"]
        if board == "board 2":
            third_began.set()
        assert board != "board 0" or third_began.wait(timeout=5)
        return chat("Up")

    server.answer = answer
    engine = engine_for(server, max_concurrency=2)
    for session in range(3):
        engine.submit(request(session))
    assert third_began.wait(timeout=5)  # on the thread that the second reply left
    engine.close()  # the other two are waited for
    assert [completion.session for completion in engine.step()] in ([1, 0, 2], [1, 2, 0])
    assert engine.step() == []


def test_a_step_with_nothing_open_returns_at_once(server: ChatServer):
    engine = engine_for(server)
    assert engine.step() == []
    engine.close()


# --- retries


def test_a_429_is_retried_after_the_time_the_server_asks_for(server: ChatServer):
    server.answers(refusal(429, "slow down", **{"Retry-After": "0.3"}), chat("Up"))
    started = time.monotonic()
    assert ask(server).text == "Up"
    assert time.monotonic() - started >= 0.3
    assert len(server.bodies) == 2


def test_a_long_retry_after_is_capped(server: ChatServer, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(api, "MAX_WAIT_S", 0.1)
    server.answers(refusal(429, "slow down", **{"Retry-After": "3600"}), chat("Up"))
    assert ask(server).text == "Up", "and not in an hour"


@pytest.mark.parametrize(
    ("header", "seconds"), [("7", 7.0), ("Thu, 01 Jan 1970 00:00:00 GMT", 0.0), ("nan", 0.0), ("-3", 0.0), ("", 0.0)]
)
def test_retry_after_is_read_as_seconds_or_date(header: str, seconds: float):
    assert api_protocol.retry_after_s(header) == seconds


def test_a_500_is_retried(server: ChatServer):
    server.answers(refusal(500, "oops"), refusal(503, "busy"), chat("Up"))
    assert ask(server).text == "Up"
    assert len(server.bodies) == 3


def test_after_the_last_retry_the_completion_carries_the_error(server: ChatServer):
    server.answers(refusal(500, "out of memory"))
    completion = ask(server, max_retries=2)
    assert len(server.bodies) == 3
    assert completion.stop_reason == StopReason.ERROR
    assert completion.error == (
        f"{server.url}/chat/completions, model some-model: answered 500 (out of memory). "
        "The server failed; try again later (3 calls)"
    )


def test_a_400_is_not_retried(server: ChatServer):
    server.answers(refusal(400, "maximum context length is 4096 tokens"))
    completion = ask(server)
    assert len(server.bodies) == 1
    assert completion.stop_reason == StopReason.ERROR
    assert "answered 400 (maximum context length is 4096 tokens). Shorten the context" in completion.error


def test_a_server_that_does_not_answer_in_time_is_an_error(server: ChatServer):
    def answer(body: dict[str, Any]) -> Answer:
        time.sleep(0.5)
        return chat("Up")

    server.answer = answer
    completion = ask(server, timeout_s=0.1, max_retries=1)
    assert len(server.bodies) == 2
    assert completion.stop_reason == StopReason.ERROR
    assert "gave no answer within 0.1 s" in completion.error


def test_parameters_the_server_does_not_know_are_left_out_from_then_on(server: ChatServer):
    def answer(body: dict[str, Any]) -> Answer:
        for name in ("seed", "max_tokens"):
            if name in body:
                return refusal(400, f"Unsupported parameter: '{name}'.")
        return chat("Up")

    server.answer = answer
    engine = engine_for(server)
    for session in range(2):
        engine.submit(request(session))
        assert engine.step()[0].text == "Up"
    engine.close()
    assert len(server.bodies) == 4  # refused twice, answered; the second request is right at once
    assert server.bodies[-1]["max_completion_tokens"] == 20
    assert "seed" not in server.bodies[-1]


# --- answers that are none


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ((200, {}, b"<html>hello</html>"), "is not JSON ('<html>hello</html>'). Check the base URL"),
        ((200, {}, b'{"choices": [{"mess'), "is not JSON"),
        ((200, {}, b"[" * 100_000), "is not JSON"),
        ((200, {}, b"\xff\xfe\x00"), "is not JSON"),
        ((200, {}, b"[]"), "no choices"),
        ((200, {}, b'{"choices": []}'), "no choices"),
        ((200, {}, b'{"choices": [{"message": null}]}'), "without text"),
        (chat(None), "without text (finish_reason 'stop')"),
        (chat(None, finish_reason="length"), "Raise actor_rollout_ref.rollout.response_length"),
        (chat("", finish_reason="content_filter"), "content filter"),
        ((200, {"Content-Length": "100"}, b'{"choices"'), "broke off its answer (IncompleteRead)"),
    ],
)
def test_a_malformed_answer_is_an_error_of_its_request(server: ChatServer, answer: Answer, message: str):
    server.answers(answer)
    completion = ask(server, max_retries=0)
    assert completion.stop_reason == StopReason.ERROR
    assert message in completion.error
    assert len(completion.error) < 500


def test_an_answer_of_more_than_ten_megabytes_is_not_read(server: ChatServer):
    server.answers((200, {}, b" " * 11_000_000))
    completion = ask(server)
    assert "more than 10 MB" in completion.error


# --- errors that would meet every request


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (refusal(401, "bad key"), "answered 401 (bad key). Set OPENAI_API_KEY"),
        (refusal(403, "no"), "answered 403 (no). This key may not use this model"),
        (refusal(404, "no model some-model"), "answered 404 (no model some-model). Check the model name"),
        (refusal(429, "quota: insufficient_quota"), "no credit left"),
        ((302, {"Location": "https://elsewhere.test"}, b""), "redirect to https://elsewhere.test"),
    ],
)
def test_an_error_for_all_requests_stops_the_engine(server: ChatServer, answer: Answer, message: str):
    server.answers(answer)
    engine = engine_for(server, max_concurrency=1)
    for session in range(5):
        engine.submit(request(session))
    for _ in range(2):  # and it stays stopped
        with pytest.raises(EngineError) as caught:
            engine.step()
        assert message in str(caught.value)
    engine.close()
    assert len(server.bodies) == 1


def test_a_refused_connection_stops_the_engine(server: ChatServer):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    engine = ApiEngine("some-model", f"http://127.0.0.1:{port}/v1", max_retries=2, backoff_s=0.01)
    engine.submit(request())
    with pytest.raises(EngineError, match=r"cannot be reached: .*refused.* \(3 calls\)"):
        engine.step()
    engine.close()


def test_https_is_spoken_where_the_base_url_says_so(server: ChatServer):
    engine = ApiEngine("some-model", server.url.replace("http:", "https:"), max_retries=0)
    engine.submit(request())
    with pytest.raises(EngineError, match=r"https://.* cannot be reached: .*SSL"):  # this server speaks plain HTTP
        engine.step()
    engine.close()


@pytest.mark.parametrize("status", [400, 401, 500])
def test_the_key_never_appears_in_an_error(server: ChatServer, status: int):
    server.answers(refusal(status, f"Incorrect API key provided: {KEY}"))
    try:
        message = ask(server, max_retries=0).error
    except EngineError as error:
        message = str(error)
    assert "Incorrect API key provided: ***" in message
    assert KEY not in message


@pytest.mark.parametrize("length", [270, 280, 290, 295, 299])
def test_a_key_is_masked_before_a_text_is_cut(server: ChatServer, length: int):
    server.answers(refusal(500, "x" * length + KEY))
    assert "sk-secret"[:4] not in ask(server, max_retries=0).error


@pytest.mark.parametrize(
    "quoted",
    [
        KEY.upper(),
        KEY.title(),
        KEY[:12],
        KEY[-10:],
        quote("sk-secret/of+the=tests", safe=""),
        quote("sk-secret/of+the=tests", safe="").lower(),
        r"sk-secret\/of+the=tests",
        base64.b64encode(b"sk-secret/of+the=tests").decode(),
        b"sk-secret/of+the=tests".hex(),
        "".join(f"\\u{ord(char):04x}" for char in "sk-secret/of+the=tests"),
        "".join(f"&#{ord(char)};" for char in "sk-secret/of+the=tests"),
        "".join(f"&#x{ord(char):X};" for char in "sk-secret/of+the=tests"),
    ],
)
def test_a_key_is_masked_in_whatever_form_it_is_quoted(
    server: ChatServer, quoted: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("OPENAI_API_KEY", KEY if "-of-" in quoted.lower() or quoted in KEY else "sk-secret/of+the=tests")
    server.answers((500, {}, f"the key {quoted} is wrong".encode()))
    error = ask(server, max_retries=0).error
    assert "the key *** is wrong" in error or ("the key ***" in error and quoted[:8] not in error)
    assert quoted not in error


@pytest.mark.parametrize("user", ["", "u:", "me:", "you:"])
def test_a_key_is_masked_in_basic_authentication(user: str):
    quoted = base64.b64encode(f"{user}{KEY}".encode()).decode()
    masked = Secret(KEY).masked(f"Basic {quoted} refused")
    shown = masked.removeprefix("Basic ").removesuffix(" refused").replace("***", "")
    assert "***" in masked and len(shown) <= 8  # the user, and what pads the end


def test_escapes_of_another_text_are_left_alone():
    text = r"\u0073\u0065\u0063 &#115;&#101; 736563"
    assert Secret(KEY).masked(text) == text


def test_a_key_in_a_redirect_or_a_finish_reason_is_masked(server: ChatServer):
    server.answers((302, {"Location": f"https://elsewhere.test/?key={KEY}"}, b""))
    with pytest.raises(EngineError) as caught:
        ask(server)
    assert KEY not in str(caught.value)
    server.answers(chat(None, finish_reason=f"bad {KEY}"))
    assert KEY not in ask(server).error


def test_control_characters_of_a_server_reach_no_terminal(server: ChatServer):
    server.answers(refusal(400, "\x1b]0;owned\x07\x1b[2Jgone\x9b31m"))
    error = ask(server).error
    assert error.isprintable() and "gone" in error


@pytest.mark.parametrize("part", [b"HTTP/1.1 200 OK\r\nX-Slow: ", b"HTTP/1.1 100 Continue\r\n\r\n", b""])
def test_the_time_limit_covers_headers_that_trickle_in(part: bytes):
    """A byte every 50 ms, long enough for a limit that begins anew with each of them never to be met."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def trickle() -> None:
            connection, _ = listener.accept()
            with connection, suppress(OSError):
                connection.sendall(part)
                for byte in b"HTTP/1.1 200 OK\r\nX-Slow: " + b"z" * 100:
                    connection.sendall(bytes([byte]))
                    time.sleep(0.05)

        thread = threading.Thread(target=trickle, daemon=True)
        thread.start()
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/v1"
        engine = ApiEngine("some-model", url, timeout_s=0.5, max_retries=0)
        engine.submit(request())
        [completion] = engine.step()
        engine.close()
        thread.join()
    assert "gave no answer within 0.5 s" in completion.error


def test_a_key_that_no_header_can_carry_is_refused_unquoted(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-first\nsk-second")
    with pytest.raises(ConfigError) as caught:
        ApiEngine("some-model", "http://127.0.0.1:1/v1")
    assert "sk-first" not in str(caught.value)


def test_close_ends_retries(server: ChatServer):
    server.answers(refusal(500, "oops"))
    engine = engine_for(server, backoff_s=3600)
    engine.submit(request())
    while not server.bodies:
        time.sleep(0.01)
    engine.close()  # not in an hour
    assert len(server.bodies) == 1, "no retry came"


# --- the base URL


def test_the_endpoint_is_built_from_the_base_url():
    expected = "http://host:8000/v1/chat/completions"
    for base_url in ("http://host:8000/v1", "http://host:8000/v1/", expected):
        assert chat_endpoint(base_url) == expected


@pytest.mark.parametrize("base_url", ["", "host:8000", "ftp://host", "http://host:port/v1", "http://me:pw1@host/v1"])
def test_a_wrong_base_url_is_refused_at_once(base_url: str):
    with pytest.raises(ConfigError) as caught:
        chat_endpoint(base_url)
    assert "pw1" not in str(caught.value)


def test_without_url_and_key_nothing_is_called(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    with pytest.raises(ConfigError, match="OPENAI_BASE_URL"):
        ApiEngine("some-model")
