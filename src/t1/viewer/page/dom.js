// Elements from plain values. Text enters as text nodes only: nothing here, or anywhere on this page, parses markup.

/** An element; `props`: class, on… handlers, data and aria attributes; children: nodes, strings, lists, null. */
export function h(tag, props = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(props ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.flat(9).filter((c) => c !== null && c !== undefined && c !== false));
  return node;
}

/** An SVG element. */
export function s(tag, props = {}, ...children) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(props)) node.setAttribute(name, value);
  node.append(...children);
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

const compact = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });
/** A number as people read it. */
export function num(value, digits = 3) {
  if (value === null || value === undefined) return "–";
  if (Number.isInteger(value)) return Math.abs(value) >= 1e5 ? compact.format(value) : value.toLocaleString("en");
  const size = Math.abs(value);
  return size !== 0 && (size < 1e-3 || size >= 1e5) ? value.toExponential(1) : value.toFixed(size >= 100 ? 0 : digits);
}
export const pct = (value) => (value === null || value === undefined ? "–" : `${(100 * value).toFixed(1)}%`);
export const secs = (v) => (v >= 60 ? `${Math.floor(v / 60)}m ${Math.round(v % 60)}s` : v >= 1 ? `${v.toFixed(1)}s` : `${Math.round(v * 1000)}ms`);

const WORDS = { solved: "✓ solved", unsolved: "○ unsolved", tampered: "⚠ tampered", failed: "✕ failed" };
/** An outcome, by word, sign and colour. */
export const badge = (outcome) => h("span", { class: `badge ${outcome}` }, WORDS[outcome] ?? outcome);

/** What stands where nothing is, and what to do. */
export const empty = (title, hint) => h("div", { class: "empty" }, h("h2", {}, title), h("p", {}, hint));
