// The tokens of a rollout, turn by turn, coloured by one of their columns. Blocks are drawn when they come into view.
import { h, ask, num } from "/page/dom.js";

const MODES = {
  mask: ["Mask", (c, i) => (c.mask[i] ? 1 : null), "coloured = sampled by the policy, and trained"],
  logprob: ["Log-probability", (c, i) => (c.logprob[i] === null ? null : Math.min(1, -c.logprob[i] / 4)), "stronger = less likely when it was sampled"],
  gap: ["Gap to the trainer", (c, i) => (c.gap?.[i] == null ? null : Math.min(1, Math.abs(c.gap[i]) / 0.1)), "|Δ log-prob| between engine and trainer"],
  version: ["Weights version", (c, i) => (c.mask[i] ? ((c.version[i] % 5) + 1) / 5 : null), "one shade a version"],
  boundary: ["Boundary case", (c, i, cases) => ({ open: 0.15, strict: 0.3, normalized: 0.6, retokenized: 0.8, split: 1 })[cases.get(c.turn[i])] ?? null, "how the token's turn joined the stream; stronger = further from strict"],
  agreement: ["Routing agreement", (c, i) => (c.agreement?.[i] == null ? null : 1 - c.agreement[i]), "coloured = fed again; stronger = other experts were chosen then"],
  value: ["Value", (c, i) => (c.value?.[i] == null ? null : Math.min(1, Math.abs(c.value[i]))), "what the critic expected"],
  advantage: ["Advantage", (c, i) => (c.advantage?.[i] == null ? null : Math.min(1, Math.abs(c.advantage[i]) / 2)), "size of the advantage"],
};

/** The section of tokens of a rollout. */
export async function tokens(run, key, found, signal) {
  const box = h("div", { class: "tokens mono", tabindex: "0", role: "region", "aria-label": "Token text" }), about = h("p", { class: "inspect mono", role: "status" }, "Point at a token, or press an arrow key on one.");
  const state = { mode: "mask", segment: 0 };
  const hint = h("span", { class: "dim" });
  const modes = h("select", { "aria-label": "Colour tokens by", onchange: (e) => { state.mode = e.target.value; fill(); } });
  const parts = found.segments.length > 1 && h("select", { "aria-label": "Segment", onchange: (e) => { state.segment = Number(e.target.value); read(); } }, found.segments.map((part, i) => h("option", { value: i }, `segment ${part.segment}`)));
  let columns = null;
  const read = async (start = 0) => {
    const got = await ask("tokens", { run, key, segment: state.segment, start }, signal);
    if (start) for (const [name, list] of Object.entries(got)) { if (Array.isArray(list)) columns[name].push(...list); else columns[name] = list; }
    else columns = got;
    modes.replaceChildren(...Object.entries(MODES).map(([name, [label]]) => {
      const stored = name === "mask" || name === "boundary" ? found.segments.length > 0 || name === "mask" : columns[name]?.some((v) => v !== null);
      return h("option", { value: name, disabled: !stored, selected: name === state.mode }, stored ? label : `${label} (${name === "agreement" ? "nothing was fed twice" : "not stored"})`);
    }));
    fill();
  };
  const fill = () => {
    const [, shade, words] = MODES[state.mode];
    const joins = found.segments[state.segment]?.boundaries ?? [], cases = new Map(joins.map((b) => [b.turn, b.case]));
    hint.textContent = words;
    const blocks = [];
    for (let i = 0; i < columns.ids.length;) {
      const from = i, turn = columns.turn[i];
      while (i < columns.ids.length && columns.turn[i] === turn && i - from < 3000) i += 1;
      blocks.push(block(from, i, turn, joins.find((b) => b.turn === turn), (t) => shade(columns, t, cases)));
    }
    box.replaceChildren(...blocks, columns.next ? h("button", { type: "button", onclick: () => read(columns.next) }, `next tokens (${num(columns.ids.length)} of ${num(columns.size)})`) : "");
  };
  const block = (from, to, turn, join, shade) => {
    const spans = h("div", { class: "stream" });
    for (let t = from; t < to; t += 1) {
      const text = columns.text[t], weight = shade(t);
      const node = h("span", { "data-t": t, class: weight === null ? "" : "lit" }, text === null ? `⟨${columns.ids[t]}⟩` : safe(text));
      if (weight !== null) node.style.setProperty("--w", weight.toFixed(3));
      spans.append(node);
      if (text?.includes("\n")) spans.append("\n");
    }
    return h("div", { class: "block" }, h("h3", {}, `Turn ${turn + 1}`, join && h("span", { class: `case ${join.case}` }, join.case),
      join && h("span", { class: "dim" }, `${num(join.inserted)} in${join.dropped ? ` · ${num(join.dropped)} dropped` : ""}${join.residual ? ` · residual ${join.residual}` : ""}`)), spans);
  };
  const tell = (event) => {
    const node = event.target.closest?.("[data-t]");
    if (!node) return;
    const t = Number(node.dataset.t), c = columns;
    const extra = ["gap", "value", "advantage"].filter((name) => c[name]?.[t] != null).map((name) => ` · ${name} ${num(c[name][t], 4)}`).join("");
    about.textContent = `token ${t} · id ${c.ids[t]} · turn ${c.turn[t] + 1} · version ${c.version[t]} · ${c.mask[t] ? `sampled · log-prob ${num(c.logprob[t], 4)} · p ${num(Math.exp(c.logprob[t]))}` : "context"}${c.agreement?.[t] == null ? "" : ` · routing agrees ${num(100 * c.agreement[t], 0)}%`}${extra}`;
  };
  let place = -1;
  box.addEventListener("pointerover", tell);
  box.addEventListener("keydown", (event) => {
    const by = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!by) return;
    event.preventDefault();
    box.querySelector(".at")?.classList.remove("at");
    place = Math.max(0, Math.min(columns.ids.length - 1, place + by));
    const node = box.querySelector(`[data-t="${place}"]`);
    node.classList.add("at");
    tell({ target: node });
  });
  await read();
  return h("section", { class: "side", "aria-label": "Tokens" }, h("div", { class: "bar-line" }, h("h2", {}, "Tokens"), modes, parts, hint), about,
    found.segments.length ? null : h("p", { class: "note" }, "Raw turns: nothing of this rollout was trained on."), found.tokenizer ? null : h("p", { class: "note" }, "No tokenizer among the run's checkpoints: ids are shown."), box);
}

const safe = (text) => text.replace(/\n/g, "⏎").replace(/\t/g, "⇥").replace(/[\u0000-\u001f\u007f-\u009f\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff\ud800-\udfff]/gu, (c) => `⟨${c.codePointAt(0).toString(16)}⟩`);
