"""A real Chromium before a real viewer. `make test-viewer` installs both; without it these tests say so."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from t1.testing.viewed_runs import write_crowded_run, write_viewed_run

from .visiting import Visitor, served

CHROMIUM = os.environ.get("T1_BROWSER", "")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Say aloud what was not tested."""
    if not CHROMIUM:
        mark = pytest.mark.skip(reason="THE VIEWER WAS NOT TESTED IN A BROWSER: run make test-viewer")
        for item in items:
            if item.path.parent == Path(__file__).parent:
                item.add_marker(mark)


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with one lifelike run, hostile rollouts among it."""
    root = tmp_path_factory.mktemp("runs")
    write_viewed_run(root / "lifelike")
    return root


@pytest.fixture(scope="session")
def site(runs: Path) -> Iterator[str]:
    with served(runs) as url:
        yield url


@pytest.fixture(scope="session")
def crowded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A run with 10 000 rollouts."""
    root = tmp_path_factory.mktemp("crowded")
    write_crowded_run(root / "crowded")
    with served(root) as url:
        yield url


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """Headless Chromium; root needs it without its own sandbox."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        yield chromium
        chromium.close()


@pytest.fixture(scope="session")
def visitor(browser: Any, site: str) -> Iterator[Visitor]:
    """One page for all tests that want one: a new one costs more than most of what is tested."""
    context = browser.new_context(locale="en-GB")
    yield Visitor(context.new_page(), site)
    context.close()


@pytest.fixture
def visit(visitor: Visitor) -> Iterator[Visitor]:
    """The page, as if it were new; at the end nothing may have gone wrong on it."""
    visitor.page.set_viewport_size({"width": 1360, "height": 900})
    visitor.page.emulate_media(color_scheme="light")
    visitor.troubles.clear()
    yield visitor
    visitor.page.evaluate("localStorage.clear()")
    assert visitor.troubles == []
