"""One word per idea: what docs/glossary.md says an idea is not called stands nowhere, as far as a pattern can tell.

A rule is a pattern, in small letters, and the word to write instead. Names of others, such as Triton's and NVIDIA's, stay: each is an
exception with its reason.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.house.test_files import ROOT, project_files

READ = (".py", ".cpp", ".h", ".c", ".in", ".md")
NOT_READ = {"docs/glossary.md": "it has a column of words that are not used", "tests/house/test_glossary.py": "this table"}


@dataclass(frozen=True)
class Rule:
    """A word that is not used, as a pattern over lower-case text, and what is written instead.

    `names` are patterns of names that others gave, which are cut out of a line first. `files` are files, or folders, where the word means
    something else. Both say why.
    """

    word: str
    instead: str
    names: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)

    @property
    def pattern(self) -> re.Pattern[str]:
        """The word by itself, or as a part of a name."""
        return re.compile(rf"(?<![a-z.])(?:{self.word})(?![a-z])")


_CLASSES = "instances of Python's classes"
_COMPUTE = "compute capability: NVIDIA's number of an architecture"
RULES = (
    Rule("behind", "after; or say what it is inside of"),
    Rule(
        "hints?",
        "property, fact, attribute",
        names={
            "get_type_hints": "Python's",
            "schedule_hint": "Triton's option",
            "hint=value": "torch's argument of create_symbol",
        },
    ),
    Rule(
        "instances?",
        "program",
        files={
            "kernelpack/kernel": _CLASSES,
            "kernelpack/frontend/expressions.py": _CLASSES,
            "tests/language/test_aggregates.py": _CLASSES,
        },
    ),
    Rule(r"partitions?(?!\()", "role"),
    Rule("retry|retries|retried", "attempt", names={"retry-after": "HTTP's name"}),
    Rule(
        "capabilit(?:y|ies)",
        "feature",
        names={
            r"compute[ _]capabilit(?:y|ies)": _COMPUTE,
            r"(?:get_)?device_capability": "torch's name",
            "cuda_capability_geq": "Triton's function",
        },
        files={
            "kernelpack/backends/cuda/machine/features.py": _COMPUTE,
            "kernelpack/backends/cuda/backend.py": _COMPUTE,
            "kernelpack/backends/cuda/device/driver.py": _COMPUTE,
            "kernelpack/testing/device_rates.py": _COMPUTE,
            "csrc/kernels": _COMPUTE,
            "tests/csrc": _COMPUTE,
            "tests/fuzz/cpp/readers.cpp": _COMPUTE,
            "tests/serving/test_plain_c.py": _COMPUTE,
            "kernelpack/compiler/target_backend.py": "an argument of Triton's hook",
            "kernelpack/knobs/hooks.py": "an argument of Triton's hook",
            "tests/triton/test_names.py": "an argument of Triton's hook",
        },
    ),
    Rule(
        "syncs?",
        "wait, barrier, fence",
        names={
            r"bar_sync|warp_sync|\"sync\"|\\s\*sync": "instructions of PTX",
            "sync_api|sync_playwright": "of playwright",
            "gpu_sync_": "of vLLM",
        },
    ),
    Rule(
        "gemms?",
        "product",
        names={
            r"def gemm\(|blas\.gemm\(": "Triton's method",
            "max_autotune_gemm": "Inductor's option",
            r"quantization\.gemm:\w+|(mixed_precision|scaled)_gemm": "Conch's",
            "awq_gemm_\\w+": "vLLM's",
            "blockwise_fp8_gemm": "torchao's",
            r"(?:kernels\.ops|\{ops\})\.gemm|deep_gemm_wrapper": "SGLang's",
            r"gemm(?:_splitk)?_(?:kernels|forward)": "gemlite's",
        },
    ),
    Rule("meta (?:function|kernel|implementation)s?", "fake kernel"),
    Rule("baselines?", "peer"),
    Rule("(?:compiler|compilation|optimi[sz]ation) phases?", "pass, or stage"),
)


def under(path: str, places: Mapping[str, str]) -> bool:
    return any(path == place or path.startswith(place + "/") for place in places)


def words_in(rule: Rule, path: str, text: str) -> Iterator[int]:
    """Yields the lines of a file that break a rule."""
    if under(path, rule.files) or not rule.pattern.search(text.lower()):
        return
    for number, line in enumerate(text.lower().splitlines(), 1):
        for name in rule.names:
            line = re.sub(name, "", line)
        if rule.pattern.search(line):
            yield number


TEXTS = {
    name: path.read_text()
    for path in project_files()
    if (name := path.relative_to(ROOT).as_posix()) not in NOT_READ and path.suffix in READ
}


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.word)
def test_ideas_have_the_words_of_the_glossary(rule: Rule) -> None:
    found = [f"{path}:{line}" for path, text in TEXTS.items() for line in words_in(rule, path, text)]
    assert found == [], f"write {rule.instead} (docs/glossary.md)"


def test_exceptions_that_nobody_needs_are_gone() -> None:
    everything = "\n".join(TEXTS.values()).lower()
    assert [name for rule in RULES for name in rule.names if not re.search(name, everything)] == []
    for rule in RULES:
        used = {path for path, text in TEXTS.items() if any(words_in(Rule(rule.word, rule.instead, rule.names), path, text))}
        assert [place for place in rule.files if not any(under(path, {place: ""}) for path in used)] == []


def test_words_are_found_and_names_are_not() -> None:
    hint, behind, sync = (next(rule for rule in RULES if rule.word.startswith(word)) for word in ("hint", "behind", "sync"))
    for rule, line in ((hint, "HINTS = 1"), (hint, "_hint_of(x)"), (behind, "what is behind it"), (sync, "Sync.FULL")):
        assert list(words_in(rule, "x.py", line)) == [1]
    for rule, line in (
        (hint, "get_type_hints(of)"),
        (hint, "shinto"),
        (sync, "bar.sync 0"),
        (sync, "async_wait, __syncthreads"),
    ):
        assert list(words_in(rule, "x.py", line)) == []


def test_the_glossary_has_the_words_of_the_rules() -> None:
    """What the rules refuse is refused by the page too, so that people can know it before a test tells them."""
    page = Path(ROOT / "docs" / "glossary.md").read_text().lower()
    columns = [row.rsplit("|", 2)[1] for row in page.splitlines() if row.startswith("| ")]
    refused = " ".join(columns)
    assert [rule.word for rule in RULES if not rule.pattern.search(refused)] == []
