"""The HTTP server with the model of fake_server.cpp, in a process of its own, and what it answers, computed anew."""

from __future__ import annotations

import http.client
import json
import re
import signal
import subprocess
import threading
import time
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Any

from tokenizers import Tokenizer

from serving_examples.language_model.gguf_file import File
from serving_examples.language_model.tokens import SYSTEM, model_file, tokenizer_of

NAME = model_file().stem
POSITIONS, VOCABULARY = 2048, 49152
"""fake_server.cpp's."""
TYPE = {"Content-Type": "application/json"}


class Server:
    """A running server. `delay`: microseconds of a call of the model. `model`: its GGUF file, SmolLM2's unless given."""

    def __init__(self, program: Path, *options: object, delay: int = 0, model: Path | None = None) -> None:
        arguments = ["--model", model or model_file(), "--package", delay, "--port", 0, *options]
        self.process = subprocess.Popen(
            [program, *map(str, arguments)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        assert self.process.stdout is not None
        said = self.process.stdout.readline()
        found = re.fullmatch(r"serving \S+ at http://127\.0\.0\.1:(\d+)\n", said)
        assert found is not None, said + self.process.communicate()[1]
        self.port = int(found[1])
        self._last = threading.local()

    def __enter__(self) -> Server:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        code, errors = self.end()
        assert error is not None or (code, errors) == (0, "")

    def end(self) -> tuple[int, str]:
        """Ends it by SIGTERM, and returns its exit code and what it wrote to stderr."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            return (self.process.wait(60), self.process.communicate()[1])
        finally:
            self.process.kill()

    def ask(self, method: str, path: str, body: object = None, headers: dict[str, str] = TYPE) -> tuple[int, Any]:
        """Returns the status and the body of an answer, read as JSON where it is that."""
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=300)
        try:
            connection.request(method, path, data, headers)
            response = connection.getresponse()
            self._last.headers = response.headers
            text = response.read()
        finally:
            connection.close()
        return response.status, json.loads(text) if response.headers["Content-Type"] == "application/json" else text

    @property
    def headers(self) -> Any:
        """Those of this thread's last answer."""
        return self._last.headers

    def complete(self, chat: bool = False, **fields: object) -> Any:
        """Returns a whole answer. A prompt and max_tokens are given where `fields` has none."""
        status, answer = self.ask("POST", path_of(chat), body_of(chat, fields))
        assert status == 200, answer
        return answer

    def stream(self, chat: bool = False, **fields: object) -> list[Any]:
        """Returns the events of an answer. Raises AssertionError where the last one is not [DONE]."""
        status, text = self.ask("POST", path_of(chat), body_of(chat, {"stream": True, **fields}))
        assert status == 200, text
        assert self.headers["Content-Type"] == "text/event-stream"
        parts = text.decode().split("\n\n")
        assert parts[-2:] == ["data: [DONE]", ""]
        assert all(part.startswith("data: ") for part in parts[:-1])
        return [json.loads(part.removeprefix("data: ")) for part in parts[:-2]]

    def refused(self, chat: bool = False, **fields: object) -> tuple[int, dict[str, Any]]:
        """Returns the status and the error of a call that is refused."""
        status, answer = self.ask("POST", path_of(chat), body_of(chat, fields))
        assert set(answer) == {"error"}
        assert set(answer["error"]) == {"message", "type", "param", "code"}
        return status, answer["error"]

    def metrics(self) -> dict[str, float]:
        text = self.ask("GET", "/metrics")[1].decode()
        return {line.rsplit(" ", 1)[0]: float(line.rsplit(" ", 1)[1]) for line in text.splitlines() if line[0] != "#"}

    def wait_until_idle(self) -> None:
        """Returns when no answer is written and no page is held. Raises AssertionError after 10 s."""
        for _ in range(200):
            found = self.metrics()
            if not any(
                found[f"vllm:{name}"] for name in ("num_requests_running", "num_requests_waiting", "kv_cache_usage_perc")
            ):
                return
            time.sleep(0.05)
        raise AssertionError(found)


def path_of(chat: bool) -> str:
    return "/v1/chat/completions" if chat else "/v1/completions"


def body_of(chat: bool, fields: dict[str, Any]) -> dict[str, Any]:
    asked = {"messages": [{"role": "user", "content": "Hello"}]} if chat else {"prompt": "Hello"}
    return {"max_tokens": 8, "temperature": 0, **asked, **fields}


@cache
def smollm() -> File:
    """SmolLM2's file, once a process: gguf takes 6 s to read it."""
    return File(model_file())


@cache
def tokenizer() -> Tokenizer:
    return tokenizer_of(smollm())


def prompt_of(messages: list[dict[str, str]]) -> list[int]:
    """Returns the tokens of a conversation, whose contents hold no control tokens."""
    default = [] if messages[0]["role"] == "system" else [{"role": "system", "content": SYSTEM}]
    text = "".join(f"<|im_start|>{one['role']}\n{one['content']}<|im_end|>\n" for one in [*default, *messages])
    return list(tokenizer().encode(f"{text}<|im_start|>assistant\n").ids)


def chosen(prompt: list[int], count: int) -> list[int]:
    """Returns the tokens that FakeModel chooses after a prompt."""
    state = 1469598103934665603
    found: list[int] = []
    for token in prompt:
        state = (state ^ token) * 1099511628211 % 2**64
    for _ in range(count):
        found.append(100 + (state >> 20) % (VOCABULARY - 100))
        state = (state ^ found[-1]) * 1099511628211 % 2**64
    return found


def text_of(tokens: list[int]) -> str:
    return str(tokenizer().decode(tokens, skip_special_tokens=False))


def expected(prompt: str | list[int], count: int) -> str:
    """Returns the text that follows a prompt."""
    return text_of(chosen(tokenizer().encode(prompt).ids if isinstance(prompt, str) else prompt, count))
