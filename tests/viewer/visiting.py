"""A viewer that is served, and a visitor who notices what a page should not do."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from t1.viewer import find_runs, serve

WAIT_MS = 60_000
"""Bound of everything that a page is waited for; a busy machine takes its time."""


@contextmanager
def served(root: Path) -> Iterator[str]:
    """The address of a viewer of these runs, in a thread of its own."""
    loop, ready, found = asyncio.new_event_loop(), threading.Event(), list[str]()

    def tell(url: str) -> None:
        found.append(url)
        ready.set()

    task = loop.create_task(serve(find_runs(root), 0, tell))

    def run() -> None:
        asyncio.set_event_loop(loop)
        try:
            loop.run_until_complete(task)
        except asyncio.CancelledError:
            pass
        finally:
            loop.run_until_complete(loop.shutdown_default_executor())
            loop.close()

    thread = threading.Thread(target=run, name="viewer")
    thread.start()
    try:
        assert ready.wait(60), "the viewer did not start"
        yield found[0]
    finally:
        loop.call_soon_threadsafe(task.cancel)
        thread.join(60)


class Visitor:
    """A page, and what it did that it should not have done."""

    def __init__(self, page: Any, site: str) -> None:
        self.page, self.site = page, site
        self.troubles: list[str] = []
        page.set_default_timeout(WAIT_MS)
        page.on("pageerror", lambda error: self.troubles.append(f"error: {error}"))
        page.on("console", self._said)
        page.on("dialog", self._asked)
        page.on("request", self._requested)

    def open(self, view: str = "", **params: Any) -> Any:
        """Go to a view of the viewer, and wait until it is drawn."""
        self.page.goto(f"{self.site}{view}?{urlencode(params)}" if params else f"{self.site}{view}")
        return self.settle()

    def settle(self) -> Any:
        """Wait until what was asked for last is drawn."""
        self.page.wait_for_function(
            "() => { const m = document.getElementById('main');"
            " return m.dataset.ready && !m.hasAttribute('aria-busy'); }"
        )
        return self.page

    def _said(self, message: Any) -> None:
        if message.type in ("error", "warning"):
            self.troubles.append(f"console: {message.text}")

    def _asked(self, dialog: Any) -> None:
        self.troubles.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    def _requested(self, request: Any) -> None:
        if not request.url.startswith((self.site, "data:")):
            self.troubles.append(f"asked {request.url}")
