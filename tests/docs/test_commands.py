"""Every command of a page works: ```sh blocks are run, those marked `checked` and commands within sentences are held to their parsers.

A page's blocks run in their order in a folder of their own. Blocks of other languages whose first line is a comment with a file's name
(`# use.py`) are written there first; so are those of README. Blocks marked `slow` are run by a test that is marked so.
"""

from __future__ import annotations

import importlib.util
import re
import shlex
import subprocess
from pathlib import Path

import pytest

from kernelpack.cli import VERBS
from kernelpack.knobs import KNOBS
from tests.docs.pages import PAGES, ROOT, commands, name_of, prepare

SAYS = {
    "README.md": (r"built my: 1 op", r"tensor\(1\.", r" 0\.5000  0\.5000  0\.5000  0\.5000\n"),
}
"""What the commands of a page print, as patterns: rows of l2_normalize's results have length 1, in torch.compile and in C++."""
FOLLOWS = dict.fromkeys(("docs/serving.md", "docs/ship.md", "docs/wheels.md"), "README.md")
"""Pages that go on in the folder of another, with what it has built."""
TARGETS = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
OF_OTHERS = {"git", "pip", "apt-get", "ldd", "nvidia-smi", "compute-sanitizer", "ls", "vllm"}
"""Programs of others that `checked` blocks may name; what they are told is not held to anything."""


def run_page(page: Path, folder: Path, *marks: str) -> str:
    """Runs a page's commands in a folder and returns what they print."""
    environment = prepare(page, folder)
    said = ""
    for text in commands(page, *marks):
        command = ["bash", "-euo", "pipefail", "-c", text]
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=600)
        assert done.returncode == 0, f"{text}\n{done.stdout}\n{done.stderr}"
        said += done.stdout
    return said


def followers(page: Path, *marks: str) -> list[Path]:
    """A page, and those that go on in its folder, that have something to run."""
    group = [page, *(other for other in PAGES if FOLLOWS.get(name_of(other)) == name_of(page))]
    return [one for one in group if commands(one, *marks)]


@pytest.mark.parametrize("page", [page for page in PAGES if followers(page) and name_of(page) not in FOLLOWS], ids=name_of)
def test_commands_run(page: Path, tmp_path: Path) -> None:
    for one in followers(page):
        said = run_page(one, tmp_path)
        assert [pattern for pattern in SAYS.get(name_of(one), ()) if not re.search(pattern, said)] == []


@pytest.mark.slow
@pytest.mark.parametrize("page", [page for page in PAGES if commands(page) != commands(page, "slow")], ids=name_of)
def test_slow_commands_run(page: Path, tmp_path: Path) -> None:
    if name_of(page) in FOLLOWS:
        run_page(ROOT / FOLLOWS[name_of(page)], tmp_path)
    run_page(page, tmp_path, "slow")


def quoted(page: Path) -> list[str]:
    """Commands within sentences and tables, and the lines of blocks that are not run."""
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    inline = [re.sub(r"\s+", " ", one).replace("\\|", "|") for one in re.findall(r"`([^`]+)`", text)]
    unrun = set(commands(page, "slow", "checked")) - set(commands(page, "slow"))
    lines = [line for block in unrun for line in block.replace("\\\n", " ").splitlines() if line.strip() and line[0] != "#"]
    return [one for one in inline if re.match(r"(?:[A-Z_]+=\S* )*(?:kernelpack|make|python -m) \S", one)] + lines


@pytest.mark.parametrize("page", [page for page in PAGES if quoted(page) and page.name != "CHANGELOG.md"], ids=name_of)
def test_commands_that_are_not_run_are_ones(page: Path) -> None:
    problems = [(one, why) for one in quoted(page) if (why := wrong_with(one))]
    assert problems == []


def wrong_with(line: str) -> str:
    """Returns what a command names that there is not, or an empty text."""
    words = shlex.split(line, comments=True)
    while words and re.fullmatch(r"[A-Z_0-9]+=.*", words[0]):
        variable = words.pop(0).partition("=")[0]
        if variable.startswith(("KERNELPACK_", "TRITON_")) and variable not in {knob.name for knob in KNOBS}:
            return f"there is no variable {variable}"
    program, *rest = words
    if program == "make":
        unknown = [word for word in rest if "=" not in word and word not in TARGETS]
        return f"there is no target {unknown}" if unknown else ""
    if program == "kernelpack":
        return wrong_with_verb(rest)
    if program == "python" and rest[0].endswith(".py"):
        return ""  # a file of the page
    if program == "python" and rest[0] == "-m":
        module, options = rest[1], [word.partition("=")[0] for word in rest[2:] if word.startswith("--")]
        if "SUBJECT" in module or module == "pytest":
            return ""
        if module == "kernelpack":
            return wrong_with_verb(rest[2:])
        found = importlib.util.find_spec(module)
        if found is None or found.origin is None:
            return f"there is no module {module}"
        file = Path(found.origin)
        text = (file.with_name("__main__.py") if file.name == "__init__.py" else file).read_text()
        text += "".join(other.read_text() for other in file.parent.glob("*.py"))
        return "".join(f"{module} has no {option}" for option in options if f'"{option}"' not in text)
    return "" if program in OF_OTHERS or program.startswith((".", "/")) else f"there is no program {program}"


def wrong_with_verb(words: list[str]) -> str:
    if not words or words[0] in ("VERB", "--help", "--version"):
        return ""
    if words[0] not in VERBS:
        return f"there is no verb {words[0]}"
    options = [word.partition("=")[0] for word in words if word.startswith("-")]
    known = set(re.findall(r"(?<![\w-])--?[a-z][a-z-]*", usage(words[0])))
    return "".join(f"{words[0]} has no {option}" for option in options if option not in known)


def usage(verb: str) -> str:
    import argparse

    module = importlib.import_module(f"kernelpack.cli.{verb}")
    parser = argparse.ArgumentParser()
    module.add_arguments(parser)
    parser.add_argument("--json")
    return parser.format_help()


def test_the_table_of_verbs_has_all() -> None:
    table = (ROOT / "docs" / "command-line.md").read_text()
    assert set(re.findall(r"\| `kernelpack (\w+)` \|", table)) == set(VERBS)


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_lead_somewhere(page: Path) -> None:
    prose = re.sub(r"^```.*?^```|`[^`]*`", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    links = re.findall(r"\]\(([^)\s]+)\)", prose)
    assert [link for link in links if "://" not in link and not leads(page, link)] == []


def leads(page: Path, link: str) -> bool:
    """Whether a link's file is there, with a heading that the link's fragment names."""
    path, _, fragment = link.partition("#")
    target = page.parent / path if path else page
    if not target.exists() or not fragment:
        return target.exists()
    titles = re.findall(r"^#+ (.*)$", target.read_text(), re.MULTILINE)
    return fragment in {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", [page for page in PAGES if page.name != "CHANGELOG.md"], ids=name_of)
def test_files_that_it_names_exist(page: Path) -> None:
    prose = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    named = re.findall(r"`((?:kernelpack|csrc|ops|tests|benchmarks|docs|serving_examples)/[\w./-]*)`", prose)
    built = ("kernelpack/library", "kernelpack/_C")
    assert [path for path in named if "NAME" not in path and not path.startswith(built) and not (ROOT / path).exists()] == []
