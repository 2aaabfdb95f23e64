// The rollouts of a run: filters in the address, rows drawn only where one looks, pages asked for when they come near.
import { h, ask, link, num, secs, badge, empty, repeat } from "/page/dom.js";
import { note } from "/page/app.js";

const ROW = 34,
  PAGE = 200,
  POLL_MS = 4000,
  TYPING_MS = 120;
const COLUMNS = [
  { name: "Step", sort: "step" },
  { name: "Task", sort: "task" },
  { name: "Outcome" },
  { name: "Reward", sort: "reward", n: true },
  { name: "Assertions", n: true },
  { name: "Stop" },
  { name: "Turns", sort: "num_turns", n: true },
  { name: "Tokens", sort: "num_sampled", n: true },
  { name: "Time", sort: "wall_s", n: true },
  { name: "Residual", sort: "residual", n: true },
  { name: "Findings" },
];
const FILTERS = [
  ["step", "Step"],
  ["outcome", "Outcome"],
  ["stop", "Stop"],
  ["case", "Boundary"],
  ["finding", "Finding"],
];

/** The list, as the address asks for it. */
export async function list(asked, signal) {
  const params = { ...asked };
  const count = h("p", { class: "dim", role: "status" }),
    fresh = h("button", { type: "button", class: "fresh", hidden: true, onclick: () => renew() });
  const selects = FILTERS.map(([name, label]) => {
    const select = h("select", { id: `by-${name}`, onchange: () => change({ [name]: select.value }) });
    return { name, label, select };
  });
  const task = h("input", {
    id: "task",
    type: "search",
    "data-key": "/",
    placeholder: "part of a name",
    value: params.task ?? "",
    autocomplete: "off",
    spellcheck: "false",
  });
  const clear = h(
    "button",
    {
      type: "button",
      class: "plain",
      onclick: () => {
        task.value = "";
        change({ task: "", ...Object.fromEntries(FILTERS.map(([name]) => [name, ""])) });
      },
    },
    "Clear",
  );
  let typing = 0,
    asking = new AbortController(),
    shown = null;
  task.addEventListener("input", () => {
    clearTimeout(typing);
    typing = setTimeout(() => change({ task: task.value }), TYPING_MS);
  });
  signal.addEventListener("abort", () => asking.abort());
  const grid = h("div", { class: "grid" }),
    damaged = h("div");

  function change(some) {
    Object.assign(params, some);
    for (const [name, value] of Object.entries(some)) note(name, value);
    renew();
  }
  async function renew() {
    asking.abort();
    asking = new AbortController();
    const mine = asking.signal;
    try {
      const found = await ask("rollouts", { ...params, offset: 0, limit: PAGE }, mine);
      if (mine.aborted) return;
      shown = found;
      draw(found, mine);
    } catch (error) {
      if (error.name !== "AbortError") count.textContent = error.message;
    }
  }
  function draw(found, mine) {
    tell(found);
    fresh.hidden = true;
    damaged.replaceChildren(...found.damaged.map((text) => h("p", { class: "alarm", role: "alert" }, text)));
    clear.hidden = ![params.task, ...FILTERS.map(([name]) => params[name])].some(Boolean);
    options(selects, found, params);
    grid.replaceChildren(
      h(
        "div",
        { role: "table", "aria-label": "Rollouts", "aria-rowcount": found.total + 1 },
        head(params, change),
        found.total ? rows(found, params, mine) : null,
      ),
      found.total ? "" : empty("No rollout fits", "Take a filter away, or wait for the next step."),
    );
    grid.dataset.total = found.total;
  }
  function tell(found) {
    const audit =
      found.audit.audited < found.audit.files ? ` · ${found.audit.audited} of ${found.audit.files} files audited` : "";
    count.replaceChildren(
      found.live ? h("span", { class: "livemark" }, "training") : "",
      ` ${num(found.total)} of ${num(found.all)}${audit}`,
    );
  }
  async function look() {
    const found = await ask("rollouts", { ...params, offset: 0, limit: 1 }, signal);
    const more = found.all - shown.all,
      audited = found.audit.audited < found.audit.files;
    if (more > 0) {
      fresh.textContent = `${num(more)} new · show`;
      fresh.hidden = false;
    }
    if (!more && found.audit.audited > shown.audit.audited) {
      if (!audited && !grid.contains(document.activeElement) && !grid.querySelector(".rows")?.scrollTop) await renew();
      else {
        tell(found);
        options(selects, found, params);
      }
    }
    return found.live || audited;
  }

  await renew();
  repeat(POLL_MS, signal, look);
  return [
    h("div", { class: "title" }, h("h1", {}, "Rollouts"), count, fresh),
    h(
      "form",
      { class: "filters", role: "search", onsubmit: (event) => event.preventDefault() },
      h("label", {}, "Task", task),
      selects.map(({ label, select }) => h("label", {}, label, select)),
      clear,
    ),
    damaged,
    grid,
  ];
}

/** What each filter can be, and how many rollouts have it. */
function options(selects, found, params) {
  const counts = {
    ...found.facets,
    step: Object.fromEntries(found.steps.map((name) => [name, found.facets.step[name]])),
  };
  for (const { name, select } of selects) {
    if (select === document.activeElement && select.childElementCount) {
      select.value = params[name] ?? "";
      continue;
    }
    const values = new Set([...Object.keys(counts[name]), params[name]].filter(Boolean));
    select.replaceChildren(
      h("option", { value: "" }, "any"),
      ...[...values].map((value) => {
        const number = counts[name][value];
        return h(
          "option",
          { value, selected: params[name] === value },
          number === undefined ? value : `${value} (${num(number)})`,
        );
      }),
    );
  }
}

function head(params, change) {
  return h(
    "div",
    { role: "rowgroup" },
    h(
      "div",
      { class: "row head", role: "row" },
      COLUMNS.map(({ name, sort, n }) => {
        const now = sort && (params.sort ?? "step") === sort,
          down = now && params.descending === "1";
        const turn = () => change({ sort, descending: now && !down ? "1" : "" });
        return h(
          "span",
          { role: "columnheader", class: n && "n", "aria-sort": now ? (down ? "descending" : "ascending") : null },
          sort ? h("button", { type: "button", onclick: turn }, name, now ? (down ? " ↓" : " ↑") : "") : name,
        );
      }),
    ),
  );
}

/** Rows of which only those in view exist; a row that stays in view stays the same node, and keeps its focus. */
function rows(first, params, signal) {
  const pages = new Map([[0, first.rows]]),
    asked = new Set([0]),
    drawn = new Map();
  const inner = h("div", { class: "inner", role: "presentation" }),
    box = h("div", { class: "rows", tabindex: "-1", role: "rowgroup" }, inner);
  inner.style.setProperty("height", `${first.total * ROW}px`);
  const paint = () => {
    const from = Math.max(0, Math.floor(box.scrollTop / ROW) - 10);
    const to = Math.min(first.total, from + Math.ceil((box.clientHeight || 800) / ROW) + 20);
    for (const [i, { node }] of drawn)
      if (i < from || i >= to) {
        node.remove();
        drawn.delete(i);
      }
    for (let i = from; i < to; i += 1) {
      const page = Math.floor(i / PAGE),
        found = pages.get(page)?.[i % PAGE],
        old = drawn.get(i);
      if (!asked.has(page)) load(page);
      if (old && old.found === found) continue;
      old?.node.remove();
      const node = line(found, params.run, i);
      node.style.setProperty("top", `${i * ROW}px`);
      const after = [...drawn].filter(([j]) => j > i).sort(([a], [b]) => a - b)[0]?.[1].node ?? null;
      inner.insertBefore(node, after);
      drawn.set(i, { node, found });
    }
  };
  const load = async (page) => {
    asked.add(page);
    try {
      pages.set(page, (await ask("rollouts", { ...params, offset: page * PAGE, limit: PAGE }, signal)).rows);
      paint();
    } catch {
      asked.delete(page);
    }
  };
  box.addEventListener("scroll", () => requestAnimationFrame(paint), { passive: true });
  box.addEventListener("keydown", (event) => {
    const by = { ArrowDown: 1, ArrowUp: -1, PageDown: 15, PageUp: -15 }[event.key];
    const now = event.target.closest?.("[data-i]");
    if (!by || !now) return;
    event.preventDefault();
    const to = Math.max(0, Math.min(first.total - 1, Number(now.dataset.i) + by));
    const top = to * ROW;
    if (top < box.scrollTop) box.scrollTop = top;
    if (top + ROW > box.scrollTop + box.clientHeight) box.scrollTop = top + ROW - box.clientHeight;
    paint();
    drawn.get(to)?.node.querySelector("a")?.focus({ preventScroll: true });
  });
  requestAnimationFrame(paint);
  return box;
}

function line(row, run, index) {
  if (!row) return h("div", { class: "row waiting", role: "row" }, h("span", { role: "cell" }, "…"));
  const cell = (...inner) => h("span", { role: "cell" }, ...inner),
    number = (...inner) => h("span", { role: "cell", class: "n" }, ...inner);
  const asserted = row.asserted === null ? "–" : `${row.passed}/${row.asserted}`;
  const said = row.findings.join(", ") || row.cases.join(", ");
  return h(
    "div",
    { class: "row", role: "row", "aria-rowindex": index + 2, "data-i": index },
    cell(row.step),
    h(
      "span",
      { role: "cell", class: "name" },
      h(
        "a",
        { href: link("rollout", { run, key: row.key }), title: row.task },
        h("span", { class: "task" }, row.task),
        h("span", { class: "dim" }, `${row.group}/${row.member}`),
      ),
    ),
    cell(badge(row.outcome)),
    number(num(row.reward)),
    number(asserted),
    cell(row.failure || row.stop),
    number(num(row.num_turns)),
    number(num(row.num_sampled)),
    number(secs(row.wall_s)),
    number(row.residual ? num(row.residual) : "–"),
    h("span", { role: "cell", class: row.findings.length ? "error" : "dim", title: said }, said || "–"),
  );
}
