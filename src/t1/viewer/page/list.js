// The rollouts of a run: filters in the address, rows drawn only where one looks, pages asked for when they come near.
import { h, ask, link, num, secs, badge, empty } from "/page/dom.js";
import { go } from "/page/app.js";

const ROW = 34, PAGE = 200;
const COLUMNS = [["step", "Step"], ["task", "Task"], ["", "Outcome"], ["reward", "Reward"], ["", "Assertions"], ["", "Stop"], ["num_turns", "Turns"], ["num_sampled", "Tokens"], ["wall_s", "Time"], ["", "Findings"]];

/** The list, as the address asks for it. */
export async function list(params, signal) {
  const first = await ask("rollouts", { ...params, offset: 0, limit: PAGE }, signal);
  const change = (name, value) => go(link("rollouts", { ...params, [name]: value }), true);
  const pick = (name, label, counts) => h("label", {}, label, h("select", { onchange: (e) => change(name, e.target.value) },
    h("option", { value: "" }, "any"),
    [...new Set([...Object.keys(counts), params[name]].filter(Boolean))].map((value) => h("option", { value, selected: params[name] === value }, counts[value] === undefined ? value : `${value} (${num(counts[value])})`))));
  const { facets } = first;
  const findings = Object.keys(facets.finding).length ? { any: "", ...facets.finding } : {};
  delete findings.any;
  const filters = h("form", { class: "filters", role: "search", onsubmit: (e) => { e.preventDefault(); change("task", e.target.elements.task.value); } },
    h("label", {}, "Task", h("input", { id: "task", name: "task", type: "search", value: params.task ?? "", placeholder: "part of a name   /" })),
    pick("step", "Step", Object.fromEntries(first.steps.map((name) => [name, undefined]))), pick("outcome", "Outcome", facets.outcome), pick("stop", "Stop", facets.stop),
    pick("case", "Boundary", facets.case), pick("finding", "Finding", findings));
  const count = h("p", { class: "dim", role: "status" }, `${num(first.total)} of ${num(first.all)}`, first.audit.audited < first.audit.files ? ` · audited ${first.audit.audited}/${first.audit.files} files` : "");
  const head = h("div", { class: "row head", role: "row" }, COLUMNS.map(([sort, name]) => {
    if (!sort) return h("span", { role: "columnheader" }, name);
    const now = (params.sort ?? "step") === sort, down = now && params.descending === "1";
    return h("span", { role: "columnheader", "aria-sort": now ? (down ? "descending" : "ascending") : null },
      h("button", { type: "button", onclick: () => go(link("rollouts", { ...params, sort, descending: now && !down ? "1" : "" }), true) }, name, now ? (down ? " ↓" : " ↑") : ""));
  }));
  const body = first.total ? virtual(first, params, signal) : empty("No rollout fits", "Take a filter away, or wait for the next step.");
  return [h("div", { class: "title" }, h("h1", {}, "Rollouts"), count), filters, first.damaged.map((text) => h("p", { class: "error", role: "alert" }, text)),
    h("div", { class: "grid", role: "table", "aria-label": "Rollouts", "aria-rowcount": first.total + 1 }, head, body)];
}

/** Rows of which only the visible ones exist. */
function virtual(first, params, signal) {
  const pages = new Map([[0, first.rows]]), asked = new Set([0]);
  const inner = h("div", { class: "inner", role: "presentation" }), box = h("div", { class: "rows", tabindex: "0", role: "rowgroup" }, inner);
  inner.style.setProperty("height", `${first.total * ROW}px`);
  const paint = () => {
    const from = Math.max(0, Math.floor(box.scrollTop / ROW) - 8), to = Math.min(first.total, from + Math.ceil((box.clientHeight || 800) / ROW) + 16);
    const rows = [];
    for (let i = from; i < to; i += 1) {
      const page = Math.floor(i / PAGE);
      if (!asked.has(page)) load(page);
      const row = line(pages.get(page)?.[i % PAGE], params.run, i);
      row.style.setProperty("top", `${i * ROW}px`);
      rows.push(row);
    }
    inner.replaceChildren(...rows);
  };
  const load = async (page) => {
    asked.add(page);
    try { pages.set(page, (await ask("rollouts", { ...params, offset: page * PAGE, limit: PAGE }, signal)).rows); } catch { asked.delete(page); return; }
    paint();
  };
  box.addEventListener("scroll", () => requestAnimationFrame(paint), { passive: true });
  requestAnimationFrame(paint);
  return box;
}

function line(row, run, index) {
  if (!row) return h("div", { class: "row waiting", role: "row" }, h("span", { role: "cell" }, "…"));
  const cell = (props, ...inner) => h("span", { role: "cell", ...props }, ...inner);
  return h("div", { class: "row", role: "row", "aria-rowindex": index + 2 },
    cell({}, row.step), cell({ class: "name" }, h("a", { href: link("rollout", { run, key: row.key }), title: row.task }, `${row.task} · ${row.group}/${row.member}`)),
    cell({}, badge(row.outcome)), cell({ class: "n" }, num(row.reward)), cell({ class: "n" }, row.asserted === null ? "–" : `${row.passed}/${row.asserted}`),
    cell({}, row.failure || row.stop), cell({ class: "n" }, num(row.num_turns)), cell({ class: "n" }, num(row.num_sampled)), cell({ class: "n" }, secs(row.wall_s)),
    cell({ class: row.findings.length ? "error" : "" }, row.findings.join(", ") || row.cases.join(", ") || "–"));
}
