"""The page in a real browser: what is seen, what keys do, what addresses mean, and what hostile text cannot do."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from t1.rundir import RunDir
from t1.testing.viewed_runs import HOSTILE_TASK, write_viewed_run, write_viewed_step

from .visiting import WAIT_MS, Visitor, served

sync_api = pytest.importorskip("playwright.sync_api", reason="THE VIEWER WAS NOT TESTED IN A BROWSER: make test-viewer")
expect = sync_api.expect
pytestmark = pytest.mark.browser
expect.set_options(timeout=WAIT_MS)

RUN = "lifelike"
KEY = "rl-00001/0/1/shell/sort-notes"
HOSTILE_KEY = f"rl-00000/9/0/{HOSTILE_TASK}"
VIEWS: dict[str, tuple[str, dict[str, str]]] = {
    "runs": ("", {}),
    "overview": ("run", {"run": RUN}),
    "steps": ("steps", {"run": RUN}),
    "rollouts": ("rollouts", {"run": RUN}),
    "rollout": ("rollout", {"run": RUN, "key": KEY, "colour": "gap"}),
    "hostile rollout": ("rollout", {"run": RUN, "key": HOSTILE_KEY}),
    "side by side": ("compare", {"run": RUN, "a": KEY, "b": "rl-00001/0/2/shell/sort-notes"}),
    "nothing": ("rollout", {"run": RUN, "key": "none"}),
}


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("name", VIEWS)
def test_no_page_has_a_barrier_that_axe_knows(visit: Visitor, name: str, theme: str) -> None:
    from axe_playwright_python.sync_playwright import Axe

    visit.page.emulate_media(color_scheme=theme)
    view, params = VIEWS[name]
    page = visit.open(view, **params)
    results = Axe().run(page)
    barriers = [
        f"{one['id']}: {node['target']} {node.get('failureSummary', '')}"
        for one in results.response["violations"]
        for node in one["nodes"]
    ]
    assert not barriers, "\n".join(barriers[:8])
    assert len(results.response["passes"]) > 10
    if name == "nothing":  # its answer is an error, and the console says so
        visit.troubles.clear()


@pytest.mark.parametrize("name", [name for name in VIEWS if name != "nothing"])
def test_no_page_is_wider_than_a_telephone(visit: Visitor, name: str) -> None:
    visit.page.set_viewport_size({"width": 390, "height": 800})
    view, params = VIEWS[name]
    page = visit.open(view, **params)
    assert page.evaluate("document.documentElement.scrollWidth") <= 390


def test_hostile_text_does_nothing_however_it_is_looked_at(visit: Visitor) -> None:
    page = visit.open("rollout", run=RUN, key=HOSTILE_KEY)
    assert page.title().startswith("Rollout")
    page.get_by_role("button", name="raw").first.click()
    expect(page.locator("#turn-1 .observation .screen")).to_contain_text("␛]0;a new title⟨07⟩")
    page.get_by_role("button", name="show all").first.click()
    page.get_by_text("First prompt, as the policy saw it").click()
    for option in page.locator("#colour option:not([disabled])").all():
        page.locator("#colour").select_option(option.get_attribute("value"))
    page.locator(".stream span").first.hover()
    page.get_by_role("link", name="Side by side").click()
    visit.settle()
    visit.open("rollouts", run=RUN, task="script")
    expect(page.locator(".name a").first).to_contain_text("<script>window.pwned=1</script>")
    assert page.evaluate("window.pwned") is None
    assert page.locator("main script, main img, main iframe, main [onerror], main [onload]").count() == 0


def test_the_policy_of_the_page_forbids_what_text_could_try(visit: Visitor) -> None:
    page = visit.open("rollouts", run=RUN)
    refused = page.evaluate(
        """() => new Promise((done) => setTimeout(() => {  // outside of the debugger's call, which no policy binds
          const tries = {
            markup: () => { document.body.innerHTML += '<b>x</b>'; },
            code: () => {
              const script = document.createElement('script');
              script.textContent = 'window.pwned = 1';
              document.head.append(script);
            },
            evaluation: () => { Function('window.pwned = 1')(); },
          };
          const refuses = ([, go]) => { try { go(); return false; } catch { return true; } };
          done(Object.entries(tries).filter(refuses).map(([name]) => name));
        }))"""
    )
    assert refused == ["markup", "code", "evaluation"]
    assert page.evaluate("fetch('http://127.0.0.1:9/').then(() => 'went out', () => 'refused')") == "refused"
    assert page.evaluate("window.pwned") is None
    visit.troubles.clear()  # the console complains of what it refused


def test_a_list_is_walked_and_a_rollout_opened_by_keys_alone(visit: Visitor) -> None:
    page = visit.open("rollouts", run=RUN)
    page.keyboard.press("/")
    page.keyboard.type("count-lines")
    expect(page.locator(".grid")).to_have_attribute("data-total", "12")
    expect(page).to_have_url(re.compile("task=count-lines"))
    page.keyboard.press("Escape")
    page.locator(".name a").first.focus()
    for _ in range(5):
        page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowUp")
    expected = page.locator("[data-i='4'] a").get_attribute("href")
    page.keyboard.press("Enter")
    visit.settle()
    assert expected is not None and page.url.endswith(expected)


def test_keys_go_to_members_turns_colours_and_back_up(visit: Visitor) -> None:
    page = visit.open("rollout", run=RUN, key=KEY)
    page.keyboard.press("j")
    expect(page).to_have_url(re.compile("sort-notes"))
    expect(page.locator(".title")).to_contain_text("member 2")
    page.keyboard.press("k")
    expect(page.locator(".title")).to_contain_text("member 1")
    page.keyboard.press("n")
    expect(page.locator("#turn-2")).to_have_class(re.compile("here"))
    page.keyboard.press("c")
    expect(page.locator("#colour")).to_have_value("logprob")
    expect(page).to_have_url(re.compile("turn=2.*colour=logprob"))
    page.keyboard.press("?")
    expect(page.get_by_role("dialog", name="Keys")).to_be_visible()
    page.keyboard.press("Escape")
    page.keyboard.press("b")
    expect(page.locator("main")).to_have_class("compare")
    page.keyboard.press("u")
    expect(page.locator("main")).to_have_class("rollout")
    page.keyboard.press("u")
    expect(page.get_by_role("heading", name="Rollouts")).to_be_visible()


def test_an_address_says_all_that_is_seen(visit: Visitor) -> None:
    page = visit.open("rollout", run=RUN, key=KEY, colour="advantage", turn=3)
    expect(page.locator("#colour")).to_have_value("advantage")
    expect(page.locator("#turn-3")).to_have_class(re.compile("here"))
    visit.open("rollouts", run=RUN, outcome="tampered", sort="reward", descending=1)
    expect(page.locator("#by-outcome")).to_have_value("tampered")
    expect(page.locator(".grid")).to_have_attribute("data-total", "1")
    page.go_back()
    expect(page.locator("#colour")).to_have_value("advantage")


def test_each_token_tells_what_engine_and_trainer_said_of_it(visit: Visitor) -> None:
    page = visit.open("rollout", run=RUN, key=KEY)
    labels = page.locator("#colour option:not([disabled])").all_inner_texts()
    assert {"Mask", "Log-probability", "Gap to the trainer", "Advantage", "Value", "Return"} <= set(labels)
    page.locator(".stream .own").first.click()
    said = dict(
        zip(page.locator(".inspect dt").all_inner_texts(), page.locator(".inspect dd").all_inner_texts(), strict=True)
    )
    assert said["Is"] == "sampled" and said["Weights"] == "v1"
    gap = float(said["log p, trainer"]) - float(said["log p, engine"])
    assert gap == pytest.approx(float(said["Gap"]), abs=2e-4)
    page.locator(".tokens").press("ArrowRight")
    assert page.locator(".inspect dd").nth(2).inner_text() == str(int(said["Place"]) + 1)


def test_output_is_shown_as_a_terminal_shows_it(visit: Visitor) -> None:
    page = visit.open("rollout", run=RUN, key="rl-00001/0/2/shell/sort-notes")
    shown = page.locator("#turn-3 .observation .screen")
    expect(shown).to_have_text("Collecting wheel\ndownloading 100%\nInstalled wheel", use_inner_text=True)
    colours = page.evaluate(
        "['.fg2', '.screen'].map((one) => getComputedStyle(document.querySelector(`#turn-3 ${one}`)).color)"
    )
    assert colours[0] != colours[1]


def test_side_by_side_says_where_two_rollouts_part(visit: Visitor) -> None:
    page = visit.open("compare", run=RUN, a=KEY, b="rl-00001/0/0/shell/sort-notes")
    expect(page.locator(".title")).to_contain_text("apart from turn 4 on")
    expect(page.locator(".parting")).to_have_attribute("id", "pair-4")
    expect(page.locator(".parting .ended")).to_have_text("ended before")


def test_the_verdict_leads_to_what_it_objects_to(visit: Visitor) -> None:
    page = visit.open("run", run=RUN)
    page.locator(".checks .warn", has_text="tampering").get_by_role("link", name="Show them").click()
    expect(page.locator(".grid[data-total]")).to_have_attribute("data-total", "1")
    expect(page.locator(".name a")).to_contain_text("hostile/")


def test_a_chosen_theme_is_kept(visit: Visitor) -> None:
    page = visit.open()
    ground = "getComputedStyle(document.body).backgroundColor"
    light = page.evaluate(ground)
    page.keyboard.press("t")
    page.keyboard.press("t")
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"
    dark = page.evaluate(ground)
    assert dark != light
    page.reload()
    visit.settle()
    assert page.evaluate(ground) == dark


def test_a_run_under_way_is_seen_to_go_on(browser: Any, tmp_path: Path) -> None:
    run = write_viewed_run(tmp_path / "live", num_steps=2)
    with served(tmp_path) as site, RunDir(run):
        context = browser.new_context()
        overview, rollouts = (Visitor(context.new_page(), site) for _ in range(2))
        overview.open("run", run="live")
        rollouts.open("rollouts", run="live")
        expect(overview.page.get_by_role("status")).to_contain_text("training · 2 steps")
        write_viewed_step(run, 2)
        expect(overview.page.get_by_role("status")).to_contain_text("training · 3 steps")
        expect(overview.page.locator("figure", has_text="Mean reward")).to_contain_text("step 2")
        rollouts.page.get_by_role("button", name="12 new · show").click()
        expect(rollouts.page.locator(".grid")).to_have_attribute("data-total", "39")
        assert overview.troubles == rollouts.troubles == []
        context.close()


def test_ten_thousand_rollouts_are_walked_with_a_screenful_of_rows(browser: Any, crowded: str) -> None:
    context = browser.new_context(viewport={"width": 1360, "height": 900})
    visitor = Visitor(context.new_page(), crowded)
    page = visitor.open("rollouts", run="crowded")
    expect(page.locator(".grid")).to_have_attribute("data-total", "10000")
    page.locator(".rows").evaluate("(box) => { box.scrollTop = box.scrollHeight; }")
    expect(page.locator("[data-i='9999']")).to_contain_text("rl-00049")
    assert page.locator(".inner .row").count() < 100
    page.keyboard.press("/")
    page.keyboard.type("task-777")
    expect(page.locator(".grid")).to_have_attribute("data-total", re.compile(r"^\d{1,2}$"))
    expect(page.locator(".name a").first).to_contain_text("task-777")
    assert visitor.troubles == []
    context.close()
