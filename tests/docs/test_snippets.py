"""Runs the code of README.md and docs/, as a reader would who starts at the top of a page.

```python blocks run one after the other in an empty folder and share their names: what a reader sees is enough. What
only we want to know (whether a result is right) stands in a comment: `<!-- python`, the code, `-->`. It may look at the
page's names, but whatever it defines or writes is not there for the code that a reader sees. In ```console blocks the
lines that start with `$ ` are commands; those of `edgeopt` run, and must succeed. ```sh blocks do not run.
"""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"^(?:```(python|console)\n(.*?)^```|<!-- (python)\n(.*?)^-->)$", re.MULTILINE | re.DOTALL)


class Block(NamedTuple):
    """A piece of code, the number of lines in front of it, and whether a reader sees it."""

    language: str
    code: str
    offset: int
    visible: bool = True


def blocks(page: Path) -> list[Block]:
    text = page.read_text(encoding="utf-8")
    return [
        Block(match[1] or match[3], match[2] or match[4], text.count("\n", 0, match.start()) + 1, match[1] is not None)
        for match in BLOCK.finditer(text)
    ]


def run_commands(code: str, page: Path) -> None:
    for line in code.replace("\\\n", " ").splitlines():
        prompt, _, command = line.partition("$ ")
        if prompt == "" and command.startswith("edgeopt "):
            script = Path(sys.executable).with_name("edgeopt")
            arguments = shlex.split(command)[1:]
            done = subprocess.run([sys.executable, script, *arguments], capture_output=True, text=True, check=False)
            assert done.returncode == 0, f"{page.name}: {command}\n{done.stdout}{done.stderr}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_code_of_a_page_runs(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"__name__": "snippet"}
    ours: dict[str, Any] = {}
    for block in blocks(page):
        if block.language == "console":
            run_commands(block.code, page)
            continue
        # Empty lines in front give tracebacks the line numbers of the page, which has no future imports.
        code = compile("\n" * block.offset + block.code, str(page), "exec", dont_inherit=True)
        if block.visible:
            exec(code, names)
            continue
        files = set(tmp_path.rglob("*"))
        exec(code, ours := {**ours, **names})
        assert set(tmp_path.rglob("*")) == files, f"{page.name}: a block that readers do not see writes files"


def test_blocks_are_found_with_their_place(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# T\n<!-- python\na = 1\n-->\n\n```python\nb = 2\n```\n```sh\nmake\n```\n", encoding="utf-8")
    assert blocks(page) == [Block("python", "a = 1\n", 2, visible=False), Block("python", "b = 2\n", 6)]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_to_files(page: Path) -> None:
    for target in re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text(encoding="utf-8")):
        assert (page.parent / target).exists(), target
