"""Pages of the documentation are whole: links lead somewhere, and what is written from the code is current."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest

from t1.evaluation.benchmarks import BENCHMARKS, PROTOCOLS
from t1.evaluation.rules import RULES

from .pages import PAGES, ROOT, blocks

_LINK = re.compile(r"\]\((?!https?://|mailto:)([^)\s#]*)(?:#([^)\s]*))?\)")


def anchors(page: Path) -> set[str]:
    """Headings as GitHub names them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_leads_somewhere(page: Path) -> None:
    for target, anchor in _LINK.findall(page.read_text(encoding="utf-8")):
        place = (page.parent / target).resolve() if target else page
        assert place.exists(), f"{page.name} links to {target}, which does not exist"
        assert not anchor or place.suffix != ".md" or anchor in anchors(place), f"{page.name}: no heading #{anchor}"


def test_the_index_lists_every_page() -> None:
    index = (ROOT / "docs" / "README.md").read_text(encoding="utf-8")
    pages = {page.name for page in (ROOT / "docs").glob("*.md")} - {"README.md"}
    assert pages == set(re.findall(r"\]\(([\w-]+\.md)\)", index))


@pytest.mark.parametrize("name", ["configuration", "commands", "audit"])
def test_what_is_written_from_the_code_is_current(name: str) -> None:
    """`make docs` writes these pages."""
    spec = importlib.util.spec_from_file_location(f"docs_{name}", ROOT / "docs" / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    written = (ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8")
    assert written == module.page(), f"docs/{name}.md is not what the code says: run make docs"


def test_the_verdicts_page_names_every_rule() -> None:
    page = (ROOT / "docs" / "verdict.md").read_text(encoding="utf-8")
    assert re.findall(r"^\| `(\w+)` \|", page, re.M) == list(RULES)


def test_the_evaluations_page_names_every_benchmark_and_protocol() -> None:
    page = (ROOT / "docs" / "evaluation.md").read_text(encoding="utf-8")
    assert all(f"`{name}`" in page for name in BENCHMARKS)
    assert re.findall(r"^\| `(\w+)` \| \d \|", page, re.M) == list(PROTOCOLS)


def test_the_two_readmes_show_the_same_commands() -> None:
    english, chinese = (ROOT / name for name in ("README.md", "README.zh-TW.md"))
    programs = [
        [line.split("#")[0].split("<")[0].strip() for _, s in blocks(p) for line in s.splitlines()]
        for p in (english, chinese)
    ]
    assert programs[0] == programs[1]
