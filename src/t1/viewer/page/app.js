// Routes, keys and theme. A view is a function (params, signal) → nodes; addresses are deep links.
import { h, ask, link, empty } from "/page/dom.js";
import { runs, overview, steps } from "/page/run.js";
import { list } from "/page/list.js";
import { rollout, compare } from "/page/rollout.js";

const VIEWS = { "": runs, run: overview, steps, rollouts: list, rollout, compare };
const main = document.getElementById("main"), nav = document.querySelector("nav");
let leaving = new AbortController();

/** Show what the address says. */
async function show() {
  leaving.abort();
  leaving = new AbortController();
  const { signal } = leaving;
  const view = location.pathname.slice(1), params = Object.fromEntries(new URLSearchParams(location.search));
  frame(view, params);
  main.className = view || "runs";
  try {
    const make = VIEWS[view];
    if (!make) throw new Error("No such view. The list of runs is behind the name t1, top left.");
    const nodes = await make(params, signal);
    if (!signal.aborted) main.replaceChildren(...[nodes].flat(9).filter(Boolean));
  } catch (error) {
    if (error.name !== "AbortError" && !signal.aborted) main.replaceChildren(h("div", { role: "alert" }, empty("This cannot be shown", error.message)));
  }
  if (!signal.aborted) main.dataset.ready = location.href;
}

function frame(view, { run }) {
  document.title = run ? `${run} · t1` : "t1 view";
  const tab = (to, name) => h("a", { href: link(to, { run }), "aria-current": view === to ? "page" : null }, name);
  nav.replaceChildren(...(run ? [h("strong", {}, run), tab("run", "Overview"), tab("steps", "Steps"), tab("rollouts", "Rollouts")] : []));
}

/** Go to an address of this page. */
export function go(address, replace = false) {
  history[replace ? "replaceState" : "pushState"](null, "", address);
  show();
}

document.addEventListener("click", (event) => {
  const a = event.target.closest?.("a[href]");
  if (!a || event.metaKey || event.ctrlKey || event.shiftKey || event.button || a.origin !== location.origin || a.hash) return;
  event.preventDefault();
  go(a.href);
});
document.addEventListener("keydown", (event) => {
  if (event.target.matches("input, select, textarea") || event.metaKey || event.ctrlKey || event.altKey) return;
  const target = { "/": "#task", j: "[data-next]", k: "[data-previous]", u: "[data-up]" }[event.key];
  const node = target && document.querySelector(target);
  if (!node) return;
  event.preventDefault();
  if (event.key === "/") node.focus(); else node.click();
});
window.addEventListener("popstate", show);

const theme = document.getElementById("theme");
const paint = (name) => { document.documentElement.dataset.theme = name; theme.setAttribute("aria-label", `Theme: ${name}`); theme.textContent = { auto: "◐", light: "☀", dark: "☾" }[name]; };
paint(localStorage.getItem("t1-theme") ?? "auto");
theme.addEventListener("click", () => {
  const next = { auto: "light", light: "dark", dark: "auto" }[document.documentElement.dataset.theme];
  localStorage.setItem("t1-theme", next);
  paint(next);
});
export { ask };
show();
