"""The chat page in a browser: it streams, stops, asks for a key, shows texts as texts, and fits a phone.

It needs `pip install -r requirements-browser.txt` and Chromium.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from tests.serving.language_model.http_server import Server, expected, prompt_of

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        find_spec("playwright") is None, reason="playwright is missing: pip install -r requirements-browser.txt"
    ),
]
HOSTILE = "<img src=x onerror=alert(1)> & <b>bold</b>"


@pytest.mark.parametrize("width", [1280, 390])
def test_a_conversation(browser: Any, http_program: Path, width: int) -> None:
    with Server(http_program, "--api-key", "secret", delay=2000) as server:
        page = browser.new_page(viewport={"width": width, "height": 800})
        problems: list[str] = []
        page.on("pageerror", lambda problem: problems.append(str(problem)))
        page.on("dialog", lambda dialog: problems.append(dialog.message))
        page.goto(f"http://127.0.0.1:{server.port}/")

        def say(text: str) -> None:
            page.fill("#text", text)
            page.press("#text", "Enter")

        say("Hello")
        assert "API key" in page.wait_for_selector(".error").text_content()
        page.fill("#key", "secret")
        page.fill("#temperature", "0")
        page.fill("#tokens", "40")
        say(HOSTILE)
        assert "40 tokens" in page.wait_for_selector(".rate").text_content()
        question = {"role": "user", "content": HOSTILE}
        answer = expected(prompt_of([question]), 40)
        assert page.evaluate("messages") == [question, {"role": "assistant", "content": answer}]
        assert page.locator(".user").nth(1).text_content() == HOSTILE
        assert page.locator(".turn").last.text_content() == answer
        assert page.locator("main img, main b").count() == 0

        page.fill("#tokens", "1500")
        say("more")
        while page.locator(".turn").count() < 6 or len(page.locator(".turn").nth(5).text_content()) < 20:
            page.wait_for_timeout(10)
        page.click("#stop")
        page.wait_for_selector("#send:visible")
        server.wait_until_idle()
        assert server.metrics()['vllm:request_success_total{finished_reason="abort"}'] == 1
        assert len(page.evaluate("messages")) == 4
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        page.click("#clear")
        assert page.evaluate("messages.length") == page.locator(".turn").count() == 0
        assert problems == []
        page.close()
