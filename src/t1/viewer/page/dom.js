// Elements from plain values. Text enters as text nodes only: nothing here, or anywhere on this page, parses markup.

/** An element; `props`: class, on… handlers, data and aria attributes; children: nodes, strings, lists, null. */
export function h(tag, props = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(props ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...present(children));
  return node;
}

/** What there is of some nodes, flat. */
export const present = (nodes) => [nodes].flat(9).filter((one) => one !== null && one !== undefined && one !== false);

/** An SVG element. */
export function s(tag, props = {}, ...children) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(props)) node.setAttribute(name, value);
  node.append(...present(children));
  return node;
}

/** An answer of the server; throws an Error that says what to do. */
export async function ask(name, params = {}, signal = undefined) {
  const words = Object.entries(params).filter(([, v]) => v !== "" && v !== null && v !== undefined);
  let reply;
  try {
    reply = await fetch(`/api/${name}?${new URLSearchParams(words)}`, { signal });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Error("The viewer does not answer. Start it again: t1 view RUN");
  }
  const answer = await reply.json();
  if (!reply.ok) throw new Error(answer.error);
  return answer;
}

/** The address of a view. */
export function link(view, params) {
  return `/${view}?${new URLSearchParams(Object.entries(params).filter(([, v]) => v))}`;
}

/** Call `again` every `ms` while it answers true and the view is open; errors are told to `failed` and tried again. */
export function repeat(ms, signal, again, failed = () => {}) {
  const turn = async () => {
    if (signal.aborted) return;
    let more = true;
    try {
      more = await again();
    } catch (error) {
      if (error.name === "AbortError") return;
      failed(error);
    }
    if (more) setTimeout(turn, ms);
  };
  setTimeout(turn, ms);
}

const compact = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });
/** A number as people read it. */
export function num(value, digits = 3) {
  if (value === null || value === undefined) return "–";
  const size = Math.abs(value);
  if (Number.isInteger(value)) return size >= 1e5 ? compact.format(value) : value.toLocaleString("en");
  return size !== 0 && (size < 1e-3 || size >= 1e5) ? value.toExponential(1) : value.toFixed(size >= 100 ? 0 : digits);
}
export const pct = (value) => (value === null || value === undefined ? "–" : `${(100 * value).toFixed(1)} %`);

/** Seconds as people read them. */
export function secs(value) {
  if (value >= 3600) return `${Math.floor(value / 3600)} h ${Math.round((value % 3600) / 60)} m`;
  if (value >= 60) return `${Math.floor(value / 60)} m ${Math.round(value % 60)} s`;
  return value >= 1 ? `${value.toFixed(1)} s` : `${Math.round(value * 1000)} ms`;
}

/** How long ago a moment (seconds since 1970) was. */
export function ago(moment) {
  const passed = Date.now() / 1000 - moment;
  const [size, unit] =
    passed < 90 ? [1, "second"] : passed < 5400 ? [60, "minute"] : passed < 129600 ? [3600, "hour"] : [86400, "day"];
  return new Intl.RelativeTimeFormat("en", { numeric: "auto" }).format(-Math.round(passed / size), unit);
}

const OUTCOMES = { solved: "✓", unsolved: "○", tampered: "⚠", failed: "✕" };
/** An outcome, by sign, word and colour. */
export const badge = (outcome) => h("span", { class: `badge ${outcome}` }, `${OUTCOMES[outcome] ?? ""} ${outcome}`);

/** What stands where nothing is, and what to do. */
export const empty = (title, hint, heading = "h2") =>
  h("div", { class: "empty" }, h(heading, {}, title), h("p", {}, hint));

/** A table that scrolls by itself when it is too wide. `heads`: names, numbers to the right as {n: name}. */
export const table = (label, heads, rows) =>
  h(
    "div",
    { class: "wide", tabindex: "0", role: "region", "aria-label": label },
    h(
      "table",
      {},
      h(
        "thead",
        {},
        h(
          "tr",
          {},
          heads.map((head) => h("th", { scope: "col", class: head.n && "n" }, head.n ?? head)),
        ),
      ),
      h("tbody", {}, rows),
    ),
  );
