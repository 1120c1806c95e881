"""The server holds clients to its limits: slow, large, wrong, many and gone ones change no answer of anserver."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from serving_examples.language_model.tokens import model_file
from tests.serving.language_model.http_server import TYPE, Server, chosen, expected, path_of, text_of


@pytest.fixture(scope="module")
def server(http_program: Path) -> Iterator[Server]:
    with Server(http_program, "--read-seconds", 1, "--body-bytes", 100000, delay=300) as server:
        yield server


def send(server: Server, data: bytes, half: bool = False) -> bytes:
    """Sends bytes, and returns all that is answered. `half`: closes the own side after them."""
    with socket.create_connection(("127.0.0.1", server.port), 30) as connection:
        connection.sendall(data)
        if half:
            connection.shutdown(socket.SHUT_WR)
        parts = []
        while part := connection.recv(65536):
            parts.append(part)
        return b"".join(parts)


def post(body: bytes, chat: bool = False, head: str = "") -> bytes:
    common = f"POST {path_of(chat)} HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
    return f"{common}{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


def status_of(answer: bytes) -> int:
    """Returns the status of an answer, whose body is an error in JSON where it says one."""
    head, _, body = answer.partition(b"\r\n\r\n")
    status = int(head.split()[1])
    if status >= 400 and body:
        assert set(json.loads(body)["error"]) == {"message", "type", "param", "code"}
    return status


GOOD = json.dumps({"prompt": [5, 6], "max_tokens": 3, "temperature": 0}).encode()
RIGHT = text_of(chosen([5, 6], 3))


def is_right(server: Server) -> bool:
    return server.complete(prompt=[5, 6], max_tokens=3)["choices"][0]["text"] == RIGHT


def test_pages_that_need_no_body(server: Server) -> None:
    assert server.ask("GET", "/health") == (200, {})
    assert server.ask("GET", "/")[1].startswith(b"<!doctype html>")
    assert "default-src 'none'" in server.headers["Content-Security-Policy"]
    assert status_of(send(server, b"GET /health HTTP/1.1\r\n\r\n", half=True)) == 200
    for name in ("Access-Control-Allow-Origin", "Set-Cookie"):
        assert name not in server.headers


@pytest.mark.parametrize("method", ["GET", "HEAD", "PUT", "DELETE", "OPTIONS", "PATCH"])
def test_methods_that_a_path_has_not_are_refused(server: Server, method: str) -> None:
    assert status_of(send(server, f"{method} /v1/completions HTTP/1.1\r\n\r\n".encode())) == 405
    allowed = method in ("GET", "HEAD")
    assert status_of(send(server, f"{method} /health HTTP/1.1\r\n\r\n".encode())) == (200 if allowed else 405)


@pytest.mark.parametrize(
    "path", ["/nope", "/v1", "/v1/", "/v1/completions/", "//", "/../../etc/passwd", "/%2e%2e/etc/passwd", "/chat.html", "/%00", "/\xff", "/v1/models/"]
)  # fmt: skip
def test_paths_that_are_not_there(server: Server, path: str) -> None:
    for method in ("GET", "POST"):
        assert status_of(send(server, f"{method} {path} HTTP/1.1\r\nContent-Length: 0\r\n\r\n".encode("latin-1"))) == 404


@pytest.mark.parametrize(
    ("head", "status"),
    [
        ("POST /v1/completions HTTP/1.1\r\nContent-Type: text/plain\r\nContent-Length: 2\r\n\r\n{}", 415),
        ("POST /v1/completions HTTP/1.1\r\nContent-Length: 2\r\n\r\n{}", 415),
        ("POST /v1/completions HTTP/1.1\r\nContent-Type: multipart/form-data; boundary=a\r\nContent-Length: 2\r\n\r\n{}", 415),
        ("POST /v1/completions HTTP/1.1\r\nContent-Type: application/json\r\nContent-Encoding: gzip\r\nContent-Length: 2\r\n\r\n{}", 415),
        ("POST /v1/completions HTTP/1.1\r\nContent-Type: application/json\r\n\r\n", 411),
        ("POST /v1/completions HTTP/1.1\r\nContent-Type: application/json\r\nTransfer-Encoding: gzip\r\n\r\n", 411),
        ("POST /v1/completions HTTP/1.1\r\nContent-Type: application/json\r\nContent-Length: -5\r\n\r\n{}", 413),
        ("POST /v1/completions HTTP/1.1\r\nContent-Type: application/json\r\nContent-Length: 99999999999\r\n\r\n{}", 413),
        ("POST /v1/completions HTTP/1.1\r\nContent-Type: application/json\r\nContent-Length: 100001\r\n\r\n" + "x" * 100001, 413),
        ("POST /v1/completions HTTP/1.1\r\nContent-Type: application/json\r\nContent-Length: x\r\n\r\n", 400),
        ("POST /v1/completions HTTP/1.1\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", 400),
        ("POST /v1/completions HTTP/1.1\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n" + 101 * f"3e8\r\n{'x' * 1000}\r\n", 413),
        ("POST /v1/completions HTTP/1.1\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n" + "1\r\nx\r\n" * 60000, 413),
        ("GET / HTTP/1.1\r\n" + "A: b\r\n" * 4000 + "\r\n", 431),
        ("GET / HTTP/1.1\r\nA: " + "b" * 20000 + "\r\n\r\n", 431),
        ("GET / HTTP/1.1\r\nA: " + "b" * 9000 + "\r\n\r\n", 400),
        ("GET /" + "a" * 9000 + " HTTP/1.1\r\n\r\n", 414),
        ("GET / HTTP/3\r\n\r\n", 400), ("FETCH / HTTP/1.1\r\n\r\n", 400), ("\x16\x03\x01\r\n\r\n", 400), ("GET / HTTP/1.1 x\r\n\r\n", 400),
        ("GET /health HTTP/1.1\r\nRange: bytes=99999-\r\n\r\n", 200), ("GET / HTTP/1.1\r\nRange: bytes=0-3,9-\r\n\r\n", 200),
        ("GET / HTTP/1.1\r\nRange: x\r\n\r\n", 416), ("GET /health HTTP/1.0\r\n\r\n", 200),
    ],
)  # fmt: skip
def test_requests_that_are_wrong_or_odd(server: Server, head: str, status: int) -> None:
    assert status_of(send(server, head.encode("latin-1"))) == status
    assert is_right(server)


def test_bodies_in_chunks_are_read(server: Server) -> None:
    parts = "".join(f"{len(part):x}\r\n{part}\r\n" for part in (GOOD.decode()[:10], GOOD.decode()[10:]))
    head = (
        "POST /v1/completions HTTP/1.1\r\nContent-Type: application/json; charset=utf-8\r\nTransfer-Encoding: chunked\r\n\r\n"
    )
    assert f'"text":{json.dumps(RIGHT, ensure_ascii=False)}'.encode() in send(server, f"{head}{parts}0\r\n\r\n".encode())
    assert status_of(send(server, post(GOOD, head="Expect: 100-continue\r\n")).partition(b"\r\n\r\n")[2]) == 200


def test_only_one_request_is_read_of_a_connection(server: Server) -> None:
    found = send(server, post(GOOD) * 2)
    assert (found.count(b"HTTP/1.1 "), found.count(b"Connection: close")) == (1, 1)


def test_a_request_that_never_ends_is_given_up(server: Server) -> None:
    begin = time.monotonic()
    with ThreadPoolExecutor(3) as pool:
        found = list(pool.map(lambda data: send(server, data), (b"GET / HT", b"GET / HTTP/1.1\r\nA: b\r\n", post(GOOD)[:-1])))
    assert [answer and status_of(answer) for answer in found] == [b"", 408, 408]
    assert 0.9 < time.monotonic() - begin < 8


def test_slow_clients_block_no_others(server: Server) -> None:
    ends = time.monotonic() + 1.5

    def write_slowly(_: int) -> int:
        with socket.create_connection(("127.0.0.1", server.port), 30) as connection:
            try:
                for byte in post(GOOD):
                    connection.sendall(bytes([byte]))
                    time.sleep(0.1)
            except OSError:  # given up
                return 408
            return status_of(connection.recv(65536))

    def read_slowly(_: int) -> bytes:
        body = json.dumps({"prompt": [5, 6], "max_tokens": 400, "temperature": 0, "stream": True, "logprobs": 5}).encode()
        with socket.socket() as connection:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            connection.connect(("127.0.0.1", server.port))
            connection.sendall(post(body))
            parts = [connection.recv(1) for _ in range(3) if time.sleep(0.5) is None]
            connection.settimeout(30)
            while part := connection.recv(65536):
                parts.append(part)
            return b"".join(parts)

    with ThreadPoolExecutor(40) as pool:
        writers = [pool.submit(write_slowly, i) for i in range(20)]
        readers = [pool.submit(read_slowly, i) for i in range(20)]
        asked = 0
        while time.monotonic() < ends:
            assert is_right(server)
            asked += 1
        assert asked > 10
        assert {writer.result() for writer in writers} == {408}
        for reader in readers:
            found = reader.result()
            texts = [json.loads(part[6:])["choices"][0]["text"] for part in found.partition(b"\r\n\r\n")[2].split(b"\n\n")[:-2]]
            assert "".join(texts) == text_of(chosen([5, 6], 400))
    server.wait_until_idle()


@pytest.mark.parametrize("stream", [False, True])
def test_clients_that_go_cancel_their_answers(server: Server, stream: bool) -> None:
    name = 'vllm:request_success_total{finished_reason="abort"}'
    before = server.metrics().get(name, 0)
    body = json.dumps({"prompt": [5, 6], "max_tokens": 2000, "stream": stream, "n": 2}).encode()
    with socket.create_connection(("127.0.0.1", server.port), 30) as connection:
        connection.sendall(post(body))
        while server.metrics()["vllm:num_requests_running"] < 2:
            time.sleep(0.01)
    server.wait_until_idle()
    assert server.metrics()[name] == before + 2


def test_a_crowd_gets_right_answers(http_program: Path) -> None:
    with Server(http_program, "--queue", 100, delay=200) as server:
        crowd(server, 64)


def crowd(server: Server, count: int) -> None:
    """Has clients ask at once; a tenth goes early, a tenth sends what is wrong. All others get what each gets alone."""

    def ask(i: int) -> None:
        prompt = [100 + i % 7, *range(200, 200 + 5 * i), 1000 + i]
        if i % 10 == 3:
            with socket.create_connection(("127.0.0.1", server.port), 30) as connection:
                connection.sendall(post(json.dumps({"prompt": prompt, "max_tokens": 1000, "stream": i % 20 == 3}).encode()))
                connection.recv(1) if i % 20 == 3 else time.sleep(0.1)
        elif i % 10 == 7:
            assert status_of(send(server, post(b'{"prompt": [1, "\xff"]}'))) == 400
        elif i % 2:
            events = server.stream(prompt=prompt, max_tokens=40 + i)
            assert "".join(event["choices"][0]["text"] for event in events) == expected(prompt, 40 + i)
        else:
            assert server.complete(prompt=prompt, max_tokens=40 + i)["choices"][0]["text"] == expected(prompt, 40 + i)

    with ThreadPoolExecutor(count) as pool:
        list(pool.map(ask, range(count)))
    server.wait_until_idle()


def test_a_full_queue_is_told(http_program: Path) -> None:
    with Server(http_program, "--queue", 2, "--sequences", 1, delay=5000) as server, ThreadPoolExecutor(12) as pool:
        asked = [pool.submit(server_ask, server, {"prompt": [5, 6], "max_tokens": 30, "temperature": 0}) for _ in range(12)]
        found = [one.result() for one in asked]
        assert {status for status, _ in found} == {200, 429}
        assert {body["error"]["type"] for status, body in found if status == 429} == {"rate_limit_error"}
        assert {body["choices"][0]["text"] for status, body in found if status == 200} == {text_of(chosen([5, 6], 30))}
        status, _ = server_ask(server, {"prompt": [[5]] * 4, "max_tokens": 200})  # those that were taken are given up
        assert status == 429
        server.wait_until_idle()


def server_ask(server: Server, body: dict[str, object]) -> tuple[int, dict[str, object]]:
    answer = send(server, post(json.dumps(body).encode()))
    assert (b"\r\nRetry-After: 1\r\n" in answer) == (status_of(answer) == 429)
    return status_of(answer), json.loads(answer.partition(b"\r\n\r\n")[2])


def test_an_answer_may_not_take_longer_than_it_may(http_program: Path) -> None:
    with Server(http_program, "--answer-seconds", 1, delay=5000) as server:
        status, error = server.refused(max_tokens=2000)
        assert (status, error["type"]) == (504, "server_error")
        assert "1 s" in error["message"]
        assert server.stream(max_tokens=2000)[-1]["error"]["type"] == "server_error"
        server.wait_until_idle()
        assert server.metrics()['vllm:request_success_total{finished_reason="abort"}'] == 2


def test_a_key_is_asked_for(http_program: Path) -> None:
    with Server(http_program, "--api-key", "top-secret") as server:
        for key in (
            None,
            "",
            "Bearer ",
            "Bearer top-secre",
            "Bearer top-secret2",
            "top-secret",
            "bearer top-secret",
            "Basic top-secret",
        ):
            for method, path in (("GET", "/v1/models"), ("POST", "/v1/completions"), ("POST", "/v1/chat/completions")):
                status, answer = server.ask(
                    method, path, {"prompt": "a"}, TYPE if key is None else {**TYPE, "Authorization": key}
                )
                assert (status, answer["error"]["code"]) == (401, "invalid_api_key")
                assert server.headers["WWW-Authenticate"] == "Bearer"
        assert server.ask("POST", "/v1/completions", {"prompt": "a"}, {**TYPE, "Authorization": "Bearer top-secret"})[0] == 200
        assert {server.ask("GET", path)[0] for path in ("/", "/health", "/metrics")} == {200}


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_server_ends_what_it_has_begun(http_program: Path, number: signal.Signals) -> None:
    with Server(http_program, delay=5000) as server:
        events: list[object] = []
        reader = threading.Thread(target=lambda: events.extend(server.stream(prompt=[5, 6], max_tokens=150)))
        reader.start()
        while server.metrics()["vllm:num_requests_running"] == 0:
            time.sleep(0.01)
        server.process.send_signal(number)
        deadline = time.monotonic() + 5
        while server.ask("GET", "/health")[0] == 200:
            assert time.monotonic() < deadline
        status, error = server.refused()
        assert (status, error["type"]) == (503, "server_error")
        reader.join()
        assert "".join(event["choices"][0]["text"] for event in events) == text_of(chosen([5, 6], 150))
        assert server.process.wait(10) == 0


def test_the_server_gives_up_what_takes_too_long_to_end(http_program: Path) -> None:
    with Server(http_program, "--drain-seconds", 1, delay=5000) as server, ThreadPoolExecutor(3) as pool:
        stream = pool.submit(server.stream, max_tokens=2000)
        idle = socket.create_connection(("127.0.0.1", server.port))
        while server.metrics()["vllm:num_requests_running"] == 0:
            time.sleep(0.01)
        begin = time.monotonic()
        assert server.end() == (0, "")
        assert time.monotonic() - begin < 8
        assert "ends" in stream.result()[-1]["error"]["message"]
        idle.close()


def test_a_port_that_is_taken_is_told(http_program: Path, server: Server) -> None:
    command = [http_program, "--model", model_file(), "--port", str(server.port)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 1
    assert "to fix: --port 0" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [([], "--model"), (["--nope", "1"], "--nope is no option"), (["--port"], "--port has no value"), (["--port", "8x"], "--port is 8x"),
     (["--queue", "-1"], "--queue is -1"), (["--connections", "0"], "from 1 on"), (["--port", "99999999999"], "expected a number"), (["--model", "/nope.gguf"], "/nope.gguf"),
     (["--api-key", "a b", "--model", "x"], "--api-key")],
)  # fmt: skip
def test_arguments_that_are_wrong_are_told(http_program: Path, arguments: list[str], problem: str) -> None:
    done = subprocess.run([http_program, *arguments], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("error: ")
    assert problem in done.stderr


def test_the_terminal_gets_answers_too(http_program: Path) -> None:
    command = [http_program, "--model", model_file(), "--prompt", "a", "--prompt", "b", "--max-tokens", "5"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, done.stdout.count("> ")) == (0, 2), done.stderr
    assert "--prompt" in subprocess.run([http_program, "--help"], capture_output=True, text=True).stdout


@pytest.mark.slow
def test_threads_do_not_race(threads_program: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    suppressions = tmp_path / "suppressions"
    suppressions.write_text("called_from_lib:libcpp-httplib.so\n")  # compiled without the sanitizer, which misses its guards
    monkeypatch.setenv("TSAN_OPTIONS", f"suppressions={suppressions}")
    with Server(threads_program, delay=200) as server:
        crowd(server, 8)
        crowd(server, 40)
