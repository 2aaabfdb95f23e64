"""How fast `t1 view` is on a run with very many rollouts, in a real headless Chromium.

Each figure is the median of `--repeats` tries, in milliseconds, as the browser's own clock has it: `list_ms` from the
navigation until the rows stand, in a viewer that knows the run already; `cold_list_ms` the first time, when every file
is indexed; `filter_ms` from the last key of a task's name until its rows stand (of which 120 ms are the pause that ends
typing); `sort_ms`, `scroll_ms` to the last row, `rollout_ms` one rollout with its tokens; `rows` how many exist in the
page. The last line is JSON. Needs `make test-viewer` to have installed the browser.

    python bench/bench_viewer.py [--rollouts 10000] [--repeats 5]
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from t1.testing.viewed_runs import write_crowded_run

BOTTOM = "(box) => { box.scrollTop = box.scrollHeight; }"
KEY = "rl-00000/5/0/shell/task-005"


def timed(page: Any, act: Callable[[], Any], until: str) -> float:
    """Milliseconds from an act until the condition holds, looked at once a frame."""
    started = time.perf_counter()
    act()
    page.wait_for_function(f"() => Boolean({until})", polling="raf")  # a bare expression would need eval
    return (time.perf_counter() - started) * 1000


def measure(page: Any, site: str, repeats: int) -> dict[str, Any]:
    """All figures."""
    total = "document.querySelector('.grid')?.dataset.total"
    rows = "document.querySelectorAll('.inner .name').length > 5"

    def go(view: str) -> Callable[[], Any]:
        return lambda: page.goto(f"{site}{view}", wait_until="commit")

    cold = timed(page, go("rollouts?run=crowded"), rows)
    samples: dict[str, list[float]] = {name: [] for name in ("list", "filter", "sort", "scroll", "rollout")}
    for number in range(repeats):
        page.goto("about:blank")
        samples["list"].append(timed(page, go("rollouts?run=crowded"), rows))
        everything = page.evaluate(total)
        page.locator("#task").fill("")
        samples["filter"].append(
            timed(page, lambda n=number: page.locator("#task").fill(f"task-{700 + n}"), f"{total} !== '{everything}'")
        )
        page.goto(f"{site}rollouts?run=crowded")
        page.wait_for_function(f"() => {rows}")
        button = page.locator(".head button", has_text="Tokens")
        samples["sort"].append(
            timed(page, button.click, "document.querySelector('[aria-sort]')?.innerText.includes('Tokens')")
        )
        last = f"document.querySelector('[data-i=\"{int(everything) - 1}\"]')"
        samples["scroll"].append(timed(page, lambda: page.locator(".rows").evaluate(BOTTOM), last))
        page.goto("about:blank")
        samples["rollout"].append(
            timed(page, go(f"rollout?run=crowded&key={KEY}"), "document.querySelector('.stream')")
        )
    page.goto(f"{site}rollouts?run=crowded")
    page.wait_for_function(f"() => {rows}")
    figures = {f"{name}_ms": round(statistics.median(values), 1) for name, values in samples.items()}
    return {"cold_list_ms": round(cold, 1), **figures, "rows": page.locator(".inner .row").count()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rollouts", type=int, default=10_000)
    parser.add_argument("--repeats", type=int, default=5)
    asked = parser.parse_args()
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        sys.exit("bench_viewer needs playwright: pip install 't1[browser]'")
    chromium = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if chromium is None:
        sys.exit("bench_viewer needs Chromium: install the package chromium")
    with tempfile.TemporaryDirectory(prefix="t1-bench-viewer-") as root:
        write_crowded_run(Path(root) / "crowded", num_rollouts=asked.rollouts)
        command = [sys.executable, "-u", "-m", "t1", "view", root, "--port", "0"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, bufsize=1) as server:
            try:
                assert server.stdout is not None
                site = server.stdout.readline().split()[0]
                with sync_playwright() as playwright:
                    browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
                    page = browser.new_page(viewport={"width": 1440, "height": 900})
                    page.set_default_timeout(120_000)
                    figures = measure(page, site, asked.repeats)
                    browser.close()
            finally:
                server.terminate()
    load = round(os.getloadavg()[0], 1)
    print(json.dumps({"bench": "viewer", "rollouts": asked.rollouts, **figures, "load": load}))


if __name__ == "__main__":
    main()
