// Routes, keys and theme. A view is a function (params, signal) → nodes; addresses are deep links.
import { h, link, empty, present } from "/page/dom.js";
import { runs } from "/page/runs.js";
import { overview } from "/page/run.js";
import { steps } from "/page/steps.js";
import { list } from "/page/list.js";
import { rollout } from "/page/rollout.js";
import { compare } from "/page/compare.js";

const VIEWS = { "": runs, run: overview, steps, rollouts: list, rollout, compare };
const main = document.getElementById("main"),
  tabs = document.querySelector("nav");
let leaving = new AbortController();

/** Show what the address says. */
async function show() {
  leaving.abort();
  leaving = new AbortController();
  const { signal } = leaving;
  const view = location.pathname.slice(1),
    params = Object.fromEntries(new URLSearchParams(location.search));
  frame(view, params);
  main.setAttribute("aria-busy", "true");
  try {
    const make = VIEWS[view];
    if (!make) throw new Error("No such view. The list of runs is behind the name t1, top left.");
    const nodes = await make(params, signal);
    if (!signal.aborted) place(view, present(nodes));
  } catch (error) {
    if (error.name === "AbortError" || signal.aborted) return;
    place(view, [h("div", { role: "alert" }, empty("This cannot be shown", error.message, "h1"))]);
  }
}

/** Put a view's nodes in; where a person was (a filter, a place in the page) stays where it can. */
function place(view, nodes) {
  const same = main.className === (view || "runs"),
    focused = same && document.activeElement?.id;
  main.className = view || "runs";
  main.replaceChildren(...nodes);
  if (focused) document.getElementById(focused)?.focus();
  if (!same) window.scrollTo(0, 0);
  main.removeAttribute("aria-busy");
  main.dataset.ready = location.href;
  main.dispatchEvent(new Event("shown"));
}

function frame(view, { run }) {
  const titles = { run: "Overview", steps: "Steps", rollouts: "Rollouts", rollout: "Rollout", compare: "Side by side" };
  document.title = [titles[view], run, "t1 view"].filter(Boolean).join(" · ");
  const inside = { rollout: "rollouts", compare: "rollouts" }[view];
  const tab = (to, name) =>
    h("a", { href: link(to, { run }), "aria-current": view === to ? "page" : inside === to ? "true" : null }, name);
  tabs.replaceChildren(
    ...(run
      ? [h("strong", { title: run }, run), tab("run", "Overview"), tab("steps", "Steps"), tab("rollouts", "Rollouts")]
      : []),
  );
}

/** Go to an address of this page. */
export function go(address, replace = false) {
  history[replace ? "replaceState" : "pushState"](null, "", address);
  show();
}

/** Write a part of the view's state into its address, and nothing else. */
export function note(name, value) {
  const address = new URL(location.href);
  if (value) address.searchParams.set(name, value);
  else address.searchParams.delete(name);
  history.replaceState(null, "", address);
}

document.addEventListener("click", (event) => {
  const a = event.target.closest?.("a[href]");
  if (!a || event.metaKey || event.ctrlKey || event.shiftKey || event.button || a.origin !== location.origin || a.hash)
    return;
  event.preventDefault();
  go(a.href);
});
window.addEventListener("popstate", show);

// Keys: a view marks what a key presses with data-key; the page itself has the help, the filter and the theme.
const help = document.getElementById("help");
document.addEventListener("keydown", (event) => {
  if (event.metaKey || event.ctrlKey || event.altKey || help.open) return;
  if (event.target.matches("input, select, textarea")) {
    if (event.key === "Escape") event.target.blur();
    return;
  }
  if (event.key === "?") {
    event.preventDefault();
    help.showModal();
    return;
  }
  const node = event.key.length === 1 && document.querySelector(`[data-key~="${CSS.escape(event.key)}"]`);
  if (!node) return;
  event.preventDefault();
  if (node.matches("input, select")) node.focus();
  else node.click();
});
document.getElementById("keys").addEventListener("click", () => help.showModal());
help.addEventListener("click", (event) => {
  if (event.target === help) help.close();
});

const theme = document.getElementById("theme");
function paint(name) {
  document.documentElement.dataset.theme = name;
  theme.setAttribute("aria-label", `Theme: ${name}`);
  theme.title = `Theme: ${name} (t)`;
  theme.textContent = { auto: "◐", light: "☀", dark: "☾" }[name];
}
paint(localStorage.getItem("t1-theme") ?? "auto");
theme.addEventListener("click", () => {
  const next = { auto: "light", light: "dark", dark: "auto" }[document.documentElement.dataset.theme];
  localStorage.setItem("t1-theme", next);
  paint(next);
});

show();
