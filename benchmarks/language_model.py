"""SmolLM2 served from C++, beside llama.cpp and torch: prompts, new tokens, many at once, threads, the start, and what rounding costs.

Figures of the server are those of a client: whole requests by HTTP. llama.cpp is asked in a process of its own (benchmarks/llama_peer.py),
by the Python of --llama, which has llama-cpp-python; torch in this one (serving_examples/language_model/torch_model.py). Peers take turns.
"""

from __future__ import annotations

import hashlib
import http.client
import json
import math
import pydoc_data.topics
import re
import statistics
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch

import kernelpack
from benchmarks.report import Row, Table, arguments, write_json
from kernelpack.errors import BuildError
from kernelpack.opgen.load import own_library
from serving_examples.language_model.build import build_server
from serving_examples.language_model.export import export, metadata, save_aoti
from serving_examples.language_model.generate import Cache, batch
from serving_examples.language_model.gguf_file import File
from serving_examples.language_model.model import Form, Llama
from serving_examples.language_model.tokens import model_file, tokenizer_of
from serving_examples.language_model.torch_model import TorchModel

FOLDER = Path(__file__).parents[1] / "build" / "language_model"
ROUNDS = 5
NEW = 64
"""New tokens of a measurement."""
TOGETHER = 128
"""New tokens of each of several sequences: attention to more keys takes longer, so everybody writes as many."""
TEXT_DIGEST = "2a95af4ac93f5b719944030ce3769070ddf827d847cba42192afa8da989e5dc4"
"""SHA-256 of the text of the perplexity: what Python's help says, as of Python 3.11.7."""
TOKENS, WINDOW = 8192, 1024
"""Of that text; each window is read alone."""


class Server:
    """A running server. `seconds` are what it took from its start to the first token of an answer."""

    def __init__(self, program: Path, library: Path, package: Path, threads: int, file: Path | None = None) -> None:
        self.file = file or model_file()
        options = {"--model": self.file, "--package": package, "--library": library, "--threads": threads, "--port": 0}
        command = [str(program), *(str(part) for option in options.items() for part in option)]
        start = time.perf_counter()
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        found = re.search(r"http://127\.0\.0\.1:(\d+)", self.process.stdout.readline())
        if found is None:
            raise SystemExit("the server did not start")
        self.port, self.salt = int(found[1]), 0
        self.times(8, 1)
        self.seconds = time.perf_counter() - start

    def times(self, read: int, write: int) -> list[float]:
        """Returns when each piece of text came after a prompt that no other has, in seconds from the request on; most are of one token."""
        self.salt += 1
        prompt = [(i * 7919 + 13 + self.salt * 101) % 49000 for i in range(read)]
        body = {"model": self.file.stem, "prompt": prompt, "max_tokens": write, "ignore_eos": True, "temperature": 0,
                "stream": True, "stream_options": {"include_usage": True}}  # fmt: skip
        connection = http.client.HTTPConnection("127.0.0.1", self.port)
        start = time.perf_counter()
        connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
        response, times = connection.getresponse(), []
        assert response.status == 200, response.read()
        while line := response.readline():
            if line.startswith(b"data: {"):
                times.append(time.perf_counter() - start)
                last = line
        written = json.loads(last[6:])["usage"]["completion_tokens"]
        assert written == write, f"{written} tokens came, {write} were asked for"
        times.pop()  # that was the usage
        return times

    def read(self, tokens: int) -> float:
        """Returns tokens a second of a prompt."""
        return tokens / self.times(tokens, 1)[0]

    def write(self, position: int) -> float:
        """Returns new tokens a second after a prompt."""
        times = self.times(position, NEW + 1)
        return NEW / (times[-1] - times[0])

    def write_many(self, sequences: int) -> float:
        """Returns new tokens a second of so many requests, from when all of them write until the first one ends."""
        found: list[list[float]] = []
        start = time.perf_counter()

        def one() -> None:
            offset = time.perf_counter() - start
            found.append([offset + passed for passed in self.times(40, TOGETHER)])

        threads = [threading.Thread(target=one) for _ in range(sequences)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        begin, end = max(times[0] for times in found), min(times[-1] for times in found)
        pieces = sum(begin < moment <= end for times in found for moment in times)
        return pieces * (TOGETHER * sequences / sum(map(len, found))) / (end - begin)


class LlamaCpp:
    """llama.cpp in a process of its own."""

    def __init__(self, python: str) -> None:
        command = [python, str(Path(__file__).with_name("llama_peer.py")), str(model_file())]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def ask(self, **asked: object) -> float:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        print(json.dumps(asked), file=self.process.stdin, flush=True)
        return float(self.process.stdout.readline())

    def read(self, tokens: int, threads: int) -> float:
        return tokens / self.ask(read=tokens, threads=threads)

    def write(self, position: int, threads: int) -> float:
        return NEW / self.ask(read=position, write=NEW, sequences=1, threads=threads)

    def write_many(self, sequences: int) -> float:
        return TOGETHER * sequences / self.ask(read=40, write=TOGETHER, sequences=sequences, threads=1)


def torch_reader(file: File, dtype: torch.dtype) -> Callable[[int], float]:
    """Returns what measures torch: tokens a second of a prompt of so many, on one thread."""
    model = TorchModel(file, dtype)

    def read(tokens: int) -> float:
        torch.set_num_threads(1)
        prompt = [(i * 7919 + 13) % 49000 for i in range(tokens)]
        start = time.perf_counter()
        model(prompt)
        return tokens / (time.perf_counter() - start)

    return read


@dataclass
class Servers:
    """Servers of each form and number of threads, started when they are asked for first."""

    library: Path
    program: Path
    running: dict[tuple[Form, int], Server] = field(default_factory=dict)

    def package(self, form: Form) -> Path:
        path = FOLDER / f"{form}.pt2"
        if not path.exists() or path.stat().st_mtime < self.library.stat().st_mtime:
            model = Llama(File(model_file()), form)
            save_aoti(export(model), path, metadata(model, "cpu"))
        return path

    def of(self, form: Form, threads: int) -> Server:
        key = form, threads
        if key not in self.running:
            self.running[key] = self.start(*key)
        return self.running[key]

    def start(self, form: Form, threads: int) -> Server:
        return Server(self.program, self.library, self.package(form), threads)

    def end(self) -> None:
        for server in self.running.values():
            server.process.terminate()


Contenders = dict[str, Callable[[], float]]
"""What measures each: "kernelpack" first."""


def cases(servers: Servers, llama: LlamaCpp | None, *, quick: bool) -> Iterator[tuple[str, Contenders, dict[str, float]]]:
    """Yields a case's name, who takes part, and the least ratio to each peer that is asked for."""
    file = File(model_file())
    readers = {} if quick else {"fp32": torch_reader(file, torch.float32), "bf16": torch_reader(file, torch.bfloat16)}

    def peers(ours: Callable[[], float], theirs: Callable[[LlamaCpp], float], **more: Callable[[], float]) -> Contenders:
        own = {"llama.cpp": lambda: theirs(llama)} if llama is not None else {}
        return {"kernelpack": ours, **own, **{f"torch {name}": reader for name, reader in more.items()}}

    forms: list[tuple[Form, float]] = [("float32", 1.4), ("int8", 2.0)]
    for form, least in forms[quick:]:
        for threads in (1,) if quick else (1, 2):
            for position in (40, 512):
                server = servers.of(form, threads)
                contenders = peers(
                    lambda server=server, position=position: server.write(position),
                    lambda llama, position=position, threads=threads: llama.write(position, threads),
                )
                yield f"one sequence, {form}, position {position}, {threads}t", contenders, {"llama.cpp": least}
    if quick:
        return
    prefill: list[tuple[Form, float, str]] = [("float32", 2.4, "fp32"), ("bfloat16", 4.0, "bf16"), ("int8", 5.0, "")]
    for form, least, peer in prefill:
        for tokens in (128, 512):
            server = servers.of(form, 1)
            more = {peer: lambda peer=peer, tokens=tokens: readers[peer](tokens)} if peer else {}
            contenders = peers(
                lambda server=server, tokens=tokens: server.read(tokens),
                lambda llama, tokens=tokens: llama.read(tokens, 1),
                **more,
            )
            yield f"prompt of {tokens}, {form}, 1t", contenders, {"llama.cpp": least, f"torch {peer}": 1.2}
    for sequences in (8, 16):
        server = servers.of("int8", 1)
        contenders = peers(
            lambda server=server, sequences=sequences: server.write_many(sequences),
            lambda llama, sequences=sequences: llama.write_many(sequences),
        )
        yield f"{sequences} sequences, int8, 1t", contenders, {"llama.cpp": 4.0}
    one, two = servers.of("int8", 1), servers.of("int8", 2)
    yield (
        "one sequence, int8, 2t",
        {"kernelpack": lambda: two.write(40), "one thread": lambda: one.write(40)},
        {"one thread": 1.6},
    )
    yield (
        "prompt of 512, int8, 2t",
        {"kernelpack": lambda: two.read(512), "one thread": lambda: one.read(512)},
        {"one thread": 1.6},
    )


def in_turns(contenders: Contenders, rounds: int) -> dict[str, float]:
    found: dict[str, list[float]] = {name: [] for name in contenders}
    for turn in range(rounds):
        for name in list(contenders)[:: 1 if turn % 2 else -1]:
            found[name].append(contenders[name]())
    return {name: statistics.median(figures) for name, figures in found.items()}


def perplexities(llama: LlamaCpp | None) -> dict[str, float]:
    """Returns the perplexity of a text in each form, and llama.cpp's. Raises SystemExit where Python's help is another text."""
    text = "\n".join(topic for _, topic in sorted(pydoc_data.topics.topics.items()))
    digest = hashlib.sha256(text.encode()).hexdigest()
    if digest != TEXT_DIGEST:
        raise SystemExit(f"the text has the digest {digest}, expected {TEXT_DIGEST}\n  to fix: Python 3.11.7")
    file = File(model_file())
    tokens = tokenizer_of(file).encode(text[:100_000]).ids[:TOKENS]
    windows = [tokens[i : i + WINDOW] for i in range(0, TOKENS, WINDOW)]
    forms: tuple[Form, ...] = ("float32", "int8")
    found = {}
    for form in forms:
        model = Llama(file, form)
        total = 0.0
        for window in windows:
            logits = model(*batch(Cache(model.config, 1, WINDOW), [window], every=True))
            total += float(torch.nn.functional.cross_entropy(logits[:-1], torch.tensor(window[1:]), reduction="sum"))
        found[form] = math.exp(total / (TOKENS - len(windows)))
    if llama is not None:
        total = sum(llama.ask(text=window) for window in windows)
        found["llama.cpp"] = math.exp(total / (TOKENS - len(windows)))
    return found


def main(given: Sequence[str] | None = None) -> None:
    parser = arguments("benchmarks.language_model")
    parser.add_argument("--llama", metavar="PYTHON", help="a Python that has llama-cpp-python")
    parser.add_argument("--library", type=Path, default=own_library(), metavar="FOLDER", help="of the ops")
    parser.add_argument("--only", default="", metavar="TEXT", help="cases whose name has it")
    asked = parser.parse_args(given)
    try:
        kernelpack.load(asked.library)
    except BuildError as error:
        raise SystemExit(error) from None
    FOLDER.mkdir(parents=True, exist_ok=True)
    servers = Servers(asked.library / "libkernelpack_ops.so", build_server(FOLDER / "server"))
    llama = LlamaCpp(asked.llama) if asked.llama else None
    table = Table(["one sequence, float32, position 512, 2t"])
    try:
        with torch.inference_mode():
            for name, contenders, least in cases(servers, llama, quick=asked.quick):
                if asked.only not in name:
                    continue
                medians = in_turns(contenders, 2 if asked.quick else ROUNDS)
                ours = medians.pop("kernelpack")
                for peer, theirs in medians.items():
                    table.add(Row(name, "tokens/s", ours, peer, theirs, limit=least[peer] * theirs))
            if asked.only in "start":
                starts = []
                for _ in range(2 if asked.quick else ROUNDS):
                    server = servers.start("int8", 1)
                    starts.append(server.seconds)
                    server.process.terminate()
                table.add(Row("start to first token, int8", "s", statistics.median(starts), "limit", 1.5, limit=1.5))
            if asked.only in "perplexity" and not asked.quick:
                found = perplexities(llama)
                exact = found.pop("float32")
                for name, perplexity in found.items():
                    print(
                        f"perplexity, {name}: {perplexity:.4f}, {100 * (perplexity / exact - 1):+.2f} % beside {exact:.4f} of float32"
                    )
    finally:
        servers.end()
    table.summarise()
    if asked.json is not None:
        write_json(asked.json, "cpu", table.rows)


if __name__ == "__main__":
    main()
