// One rollout: the terminal turn by turn beside its tokens.
import { h, ask, link, num, secs, badge } from "/page/dom.js";
import { note } from "/page/app.js";
import { still, turn } from "/page/terminal.js";
import { tokens } from "/page/tokens.js";

/** A rollout by its key; `turn`, `colour` and `segment` say where to look first. */
export async function rollout({ run, key, ...look }, signal) {
  const found = await ask("rollout", { run, key }, signal);
  const panel = await tokens(run, key, found, look, signal);
  const turns = h(
    "section",
    { class: "terminal", "aria-label": "Terminal" },
    h("h2", {}, "Terminal"),
    instruction(found),
    found.turns.map((one) => turn({ run, key }, one)),
  );
  walk(turns, panel, Number(look.turn ?? 0), signal);
  return [heading(run, key, found), facts(found), evidence(found), h("div", { class: "split" }, turns, panel)];
}

function heading(run, key, found) {
  const { siblings, row } = found,
    at = siblings.findIndex((other) => other.key === key);
  const other = siblings[at + 1] ?? siblings[at - 1];
  const to = (one, keyed, sign) =>
    one && h("a", { class: "button", href: link("rollout", { run, key: one.key }), "data-key": keyed }, sign);
  return h(
    "div",
    { class: "title" },
    h("a", { class: "button", href: link("rollouts", { run, step: row.step }), "data-key": "u" }, "↑ List"),
    h("h1", {}, row.task),
    badge(row.outcome),
    h("span", { class: "dim" }, `${row.step} · group ${row.group} · member ${row.member}`),
    h("span", { class: "gap" }),
    to(siblings[at - 1], "k", "← Member"),
    to(siblings[at + 1], "j", "Member →"),
    other &&
      h(
        "a",
        { class: "button", "data-key": "b", href: link("compare", { run, a: key, b: other.key }) },
        "Side by side",
      ),
  );
}

/** Turns by key, by click and by address; both columns go there together. */
function walk(turns, panel, first, signal) {
  const nodes = [...turns.querySelectorAll(".turn")];
  let at = 0;
  const to = (index, smooth = true) => {
    at = Math.max(0, Math.min(nodes.length - 1, index));
    note("turn", at ? String(at + 1) : "");
    nodes.forEach((node, i) => node.classList.toggle("here", i === at));
    nodes[at]?.scrollIntoView({
      block: "start",
      behavior: smooth && !matchMedia("(prefers-reduced-motion: reduce)").matches ? "smooth" : "instant",
    });
    panel.dispatchEvent(new CustomEvent("turn", { detail: at }));
  };
  const button = (keyed, by) =>
    h(
      "button",
      {
        type: "button",
        class: "sr",
        tabindex: "-1",
        "aria-hidden": "true",
        "data-key": keyed,
        onclick: () => to(at + by),
      },
      keyed,
    );
  turns.append(button("n", 1), button("p", -1));
  turns.addEventListener("click", (event) => {
    const chosen = event.target.closest("[data-goto]");
    if (chosen) {
      event.preventDefault();
      to(Number(chosen.dataset.goto));
    }
  });
  panel.addEventListener("goto", (event) => to(event.detail));
  if (first > 1)
    document.getElementById("main").addEventListener("shown", () => to(first - 1, false), { once: true, signal });
}

/** What a rollout came to, and what it took. */
export function facts(found) {
  const { timings: t, usage: u } = found;
  const passed = found.assertions?.filter((one) => one.status === "passed").length;
  const fact = (name, value, hint) => h("div", { title: hint }, h("dt", {}, name), h("dd", {}, value));
  return h(
    "dl",
    { class: "facts" },
    fact("Reward", num(found.reward), `from ${found.reward_source}`),
    found.assertions && fact("Assertions", `${passed} / ${found.assertions.length}`),
    fact("Stop", found.stop.replaceAll("_", " ")),
    fact("Turns", num(found.turns.length)),
    fact("Sampled", `${num(u.tokens_out)} tokens`),
    fact("Prompts", `${num(u.tokens_in)} tokens`, `${num(u.tokens_cached)} of them were in the engine's cache`),
    fact("Wall", secs(t.wall_s)),
    fact("Engine", secs(t.engine_s), `and ${secs(t.queue_s)} in its queue`),
    fact("Sandbox", secs(t.sandbox_s)),
    fact("Verifier", secs(t.verifier_s)),
    found.priced && fact("Cost", num(u.money, 4)),
    found.attempts > 1 && fact("Launches", num(found.attempts)),
  );
}

/** Failure, tampering, findings, assertions: what decided the reward. */
export function evidence(found) {
  return h(
    "div",
    { class: "evidence" },
    found.failure && h("p", { class: "alarm" }, h("b", {}, `✕ ${found.failure.kind}`), ` ${found.failure.message}`),
    found.tamper.map((one) =>
      h(
        "p",
        { class: one.level === "tampering" ? "alarm" : "note" },
        h("b", {}, `⚠ ${one.rule}`),
        ` ${one.path} ${one.message} (${one.level})`,
      ),
    ),
    found.findings.map((one) =>
      h(
        "p",
        { class: "alarm" },
        h("b", {}, `${one.severity}: ${one.rule}`),
        ` ${one.where}: ${one.message} `,
        h("span", { class: "dim" }, `${one.meaning} ${one.remedy}`),
      ),
    ),
    found.assertions
      ? h("ul", { class: "assertions", "aria-label": "Assertions" }, found.assertions.map(assertion))
      : h("p", { class: "note" }, found.report_error || "No assertions: nothing was verified."),
  );
}

const SIGNS = { passed: "✓", failed: "✕", error: "!", skipped: "–" };
function assertion(one) {
  const name = h(
    "span",
    { class: one.status },
    SIGNS[one.status],
    " ",
    one.name,
    h("span", { class: "sr" }, `, ${one.status}`),
  );
  if (!one.message.runs.length) return h("li", {}, name);
  return h("li", {}, h("details", {}, h("summary", {}, name), still(one.message, `message of ${one.name}`)));
}

/** The first prompt, as the policy saw it. */
export const instruction = (found) =>
  found.prompt.runs.length > 0 &&
  h("details", {}, h("summary", {}, "First prompt, as the policy saw it"), still(found.prompt, "first prompt"));
