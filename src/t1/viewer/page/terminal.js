// Output of a terminal as styled text. Colours and weight are kept; every other control sequence is counted and left
// out, and characters that hide or reorder text are shown by their number. A carriage return overwrites its line.
import { h } from "/page/dom.js";

const SEQUENCE = /\x1b\[([0-9;:?<=>]*)[ -/]*([@-~])|\x1b[\]PX^_][\s\S]*?(?:\x07|\x1b\\|$)|\x1b[ -/]*[0-~]|\x9b[0-9;]*[@-~]/g;
const HIDDEN = /[\u0000-\u0008\u000b\u000c\u000e-\u001f\u007f-\u009f\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff\ud800-\udfff]/gu;

/** {segments: [{text, style}], dropped} of an output. */
export function parse(raw) {
  const segments = [];
  let style = "", at = 0, dropped = 0;
  const add = (text) => text && segments.push({ text, style });
  for (const match of raw.matchAll(SEQUENCE)) {
    add(raw.slice(at, match.index));
    at = match.index + match[0].length;
    if (match[2] === "m") style = restyle(style, match[1]);
    else dropped += 1;
  }
  add(raw.slice(at));
  return { segments, dropped };
}

function restyle(style, codes) {
  const on = new Set(style.split(" ").filter(Boolean));
  const clear = (prefix) => on.forEach((name) => name.startsWith(prefix) && on.delete(name));
  const list = codes.split(/[;:]/).map(Number);
  for (let i = 0; i < list.length; i += 1) {
    const code = list[i];
    if (code === 0) on.clear();
    else if (code === 1) on.add("bold");
    else if (code === 2) on.add("dim");
    else if (code === 3) on.add("italic");
    else if (code === 4) on.add("underline");
    else if (code === 22) { on.delete("bold"); on.delete("dim"); }
    else if (code >= 30 && code <= 37) { clear("fg"); on.add(`fg${code - 30}`); }
    else if (code >= 90 && code <= 97) { clear("fg"); on.add(`fg${code - 90}`); }
    else if (code === 39) clear("fg");
    else if (code === 38 || code === 48) i += list[i + 1] === 5 ? 2 : 4;
  }
  return [...on].join(" ");
}

/** The last state of lines that were overwritten. */
const settle = (text) => text.replace(/\r+\n/g, "\n").replace(/^[^\n]*\r(?=[^\n])/gm, "").replace(/\r/g, "");
const visible = (text) => text.replace(HIDDEN, (c) => `⟨${c.codePointAt(0).toString(16).toUpperCase().padStart(2, "0")}⟩`);

/** The nodes of an output that may have a middle left out; `more` loads all of it. */
export function screen({ text, tail, left_out: missing }, more) {
  const box = h("pre", { class: "screen", dir: "ltr", tabindex: "0", "aria-label": "terminal output" });
  let dropped = 0;
  const show = (raw) => {
    const parsed = parse(settle(raw));
    dropped += parsed.dropped;
    return parsed.segments.map(({ text: t, style }) => h("span", { class: style || null }, visible(t)));
  };
  box.append(...show(text));
  if (missing) {
    box.append(h("button", { type: "button", class: "more", onclick: more }, `${missing.toLocaleString("en")} characters left out · show all`), ...show(tail));
  }
  return [box, dropped > 0 && h("p", { class: "note" }, `${dropped} control sequences were not replayed`)];
}
