// The tokens of a rollout, turn by turn, coloured by one of their columns. Blocks are drawn when they come into view.
import { h, ask, num } from "/page/dom.js";
import { note } from "/page/app.js";

const CASES = ["open", "strict", "normalized", "retokenized", "split"];
const CHUNK = 3000;

/** The size that all but a few of a column's numbers keep to; what `floor` says at least. */
function reach(column, floor) {
  const sizes = column
    .filter((v) => v !== null)
    .map(Math.abs)
    .sort((a, b) => a - b);
  return Math.max(floor, sizes[Math.floor(0.98 * (sizes.length - 1))] ?? 0);
}
const signed = (name, floor) => (c) => {
  const most = reach(c[name], floor);
  return {
    of: (i) => (c[name][i] === null ? null : Math.max(-1, Math.min(1, c[name][i] / most))),
    ends: [num(-most), "0", num(most)],
  };
};

/** How each column colours: (columns, cases by turn) → {of(i) → −1…1, a class {kind: 0…5}, or null; ends or kinds}. */
const MODES = {
  mask: {
    label: "Mask",
    hint: "Sampled by the policy and trained on; everything else is context.",
    paint: (c) => ({ of: (i) => (c.mask[i] ? 1 : null), kinds: ["sampled"] }),
  },
  logprob: {
    label: "Log-probability",
    hint: "How unlikely the token was when it was sampled.",
    paint: (c) => {
      const most = reach(c.logprob, 0.1);
      return { of: (i) => (c.logprob[i] === null ? null : Math.min(1, -c.logprob[i] / most)), ends: ["0", num(-most)] };
    },
  },
  gap: {
    label: "Gap to the trainer",
    hint: "Trainer's log-probability minus the engine's, at the same weights.",
    paint: signed("gap", 1e-7),
  },
  advantage: {
    label: "Advantage",
    hint: "As the policy's loss saw it: above zero the token is made likelier.",
    paint: signed("advantage", 1e-3),
  },
  value: {
    label: "Value",
    hint: "What the critic expected of the rest before this token.",
    paint: signed("value", 1e-3),
  },
  return: { label: "Return", hint: "What the critic is taught to expect.", paint: signed("return", 1e-3) },
  version: {
    label: "Weights version",
    hint: "Which weights sampled the token.",
    paint: (c) => {
      const all = [...new Set(c.version)].sort((a, b) => a - b);
      return {
        of: (i) => (c.mask[i] ? { kind: all.indexOf(c.version[i]) % 6 } : null),
        kinds: all.map((v) => `v${v}`),
      };
    },
  },
  boundary: {
    label: "Boundary case",
    hint: "How the token's turn joined the stream.",
    paint: (c, cases) => ({
      of: (i) => {
        const at = CASES.indexOf(cases.get(c.turn[i]));
        return at < 0 ? null : { kind: at };
      },
      kinds: CASES,
    }),
  },
  agreement: {
    label: "Routing agreement",
    hint: "Experts that were chosen again when the token was fed again; stronger = others were.",
    paint: (c) => ({
      of: (i) => (c.agreement[i] === null ? null : 1 - c.agreement[i]),
      ends: ["all again", "none again"],
    }),
  },
};
const WHY = {
  agreement: "nothing was fed twice",
  gap: "not stored",
  advantage: "not stored",
  value: "not stored",
  return: "not stored",
};

/** The section of tokens of a rollout; `look` may name a colour and a segment. */
export async function tokens(run, key, found, look, signal) {
  const box = h("div", { class: "tokens mono", tabindex: "0", role: "region", "aria-label": "Token text" });
  const about = h("dl", { class: "inspect", "aria-live": "polite" }),
    legend = h("p", { class: "legend" });
  const state = {
    mode: look.colour in MODES ? look.colour : "mask",
    segment: Math.min(Number(look.segment ?? 0), Math.max(found.segments.length - 1, 0)),
    at: -1,
  };
  const modes = h("select", { id: "colour", "aria-label": "Colour tokens by", onchange: () => colour(modes.value) });
  const next = h(
    "button",
    {
      type: "button",
      class: "sr",
      tabindex: "-1",
      "aria-hidden": "true",
      "data-key": "c",
      onclick: () => {
        const there = [...modes.options].filter((option) => !option.disabled).map((option) => option.value);
        colour(there[(there.indexOf(state.mode) + 1) % there.length]);
      },
    },
    "c",
  );
  const parts =
    found.segments.length > 1 &&
    h(
      "select",
      {
        id: "segment",
        "aria-label": "Segment",
        onchange: () => {
          state.segment = Number(parts.value);
          note("segment", String(state.segment));
          read();
        },
      },
      found.segments.map((part, i) =>
        h(
          "option",
          { value: i, selected: i === state.segment },
          `segment ${part.segment + 1} of ${found.segments.length}`,
        ),
      ),
    );
  let columns = null;

  const stored = (name) =>
    name === "mask" ||
    name === "version" ||
    (name === "boundary" ? found.segments.length > 0 : columns[name]?.some((v) => v !== null));
  const read = async (start = 0) => {
    const got = await ask("tokens", { run, key, segment: state.segment, start }, signal);
    if (!start) columns = got;
    else
      for (const [name, value] of Object.entries(got)) {
        if (Array.isArray(value)) columns[name] = columns[name].concat(value);
        else columns[name] = value;
      }
    if (!stored(state.mode)) state.mode = "mask";
    modes.replaceChildren(
      ...Object.entries(MODES).map(([name, { label }]) =>
        h(
          "option",
          { value: name, disabled: !stored(name), selected: name === state.mode },
          stored(name) ? label : `${label} (${WHY[name] ?? "none"})`,
        ),
      ),
    );
    fill();
  };
  const colour = (name) => {
    state.mode = name;
    modes.value = name;
    note("colour", name === "mask" ? "" : name);
    fill();
  };
  const fill = () => {
    const joins = found.segments[state.segment]?.boundaries ?? [],
      cases = new Map(joins.map((join) => [join.turn, join.case]));
    const paint = MODES[state.mode].paint(columns, cases),
      blocks = [];
    explain(legend, MODES[state.mode].hint, paint);
    for (let i = 0; i < columns.ids.length;) {
      const from = i,
        turn = columns.turn[i];
      while (i < columns.ids.length && columns.turn[i] === turn && i - from < CHUNK) i += 1;
      blocks.push(
        block(
          columns,
          from,
          i,
          joins.find((join) => join.turn === turn),
          paint,
        ),
      );
    }
    const more =
      columns.next &&
      h(
        "button",
        { type: "button", onclick: () => read(columns.next) },
        `More (${num(columns.ids.length)} of ${num(columns.size)} tokens are here)`,
      );
    box.replaceChildren(...blocks, more || "");
  };
  const point = (t) => {
    box.querySelector(".at")?.classList.remove("at");
    state.at = Math.max(0, Math.min(columns.ids.length - 1, t));
    const node = box.querySelector(`[data-t="${state.at}"]`);
    node?.classList.add("at");
    inspect(about, columns, state.at);
    return node;
  };
  box.addEventListener("pointerover", (event) => {
    const node = event.target.closest?.("[data-t]");
    if (node) inspect(about, columns, Number(node.dataset.t));
  });
  box.addEventListener("pointerleave", () => {
    if (state.at >= 0) inspect(about, columns, state.at);
  });
  box.addEventListener("click", (event) => {
    const node = event.target.closest("[data-t]"),
      goto = event.target.closest("[data-block]");
    if (node) point(Number(node.dataset.t));
    else if (goto) section.dispatchEvent(new CustomEvent("goto", { detail: Number(goto.dataset.block) }));
  });
  box.addEventListener("keydown", (event) => {
    const by = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!by || event.target !== box) return;
    event.preventDefault();
    point(state.at + by)?.scrollIntoView({ block: "nearest" });
  });
  const section = h(
    "section",
    { class: "side", "aria-label": "Tokens" },
    h("div", { class: "bar-line" }, h("h2", {}, "Tokens"), modes, parts, next),
    legend,
    about,
    found.segments.length ? null : h("p", { class: "note" }, "Raw turns: nothing of this rollout was trained on."),
    found.tokenizer ? null : h("p", { class: "note" }, "No tokenizer among the run's checkpoints: ids are shown."),
    box,
  );
  section.addEventListener("turn", (event) => {
    const target = box.querySelector(`[data-block="${event.detail}"]`)?.closest(".block");
    if (target) box.scrollTop += target.getBoundingClientRect().top - box.getBoundingClientRect().top - 8;
  });
  await read();
  inspect(about, columns, -1);
  return section;
}

function block(columns, from, to, join, paint) {
  const stream = h("div", { class: "stream" }),
    turn = columns.turn[from];
  for (let t = from; t < to; t += 1) {
    const text = columns.text[t],
      shade = paint.of(t);
    const kind =
      shade === null ? "" : typeof shade === "object" ? `lit kind${shade.kind}` : shade < 0 ? "lit minus" : "lit";
    const node = h(
      "span",
      { "data-t": t, class: `${columns.mask[t] ? "own " : ""}${kind}` },
      text === null ? `⟨${columns.ids[t]}⟩` : safe(text),
    );
    if (typeof shade === "number") node.style.setProperty("--w", Math.abs(shade).toFixed(3));
    stream.append(node);
    if (text?.includes("\n")) stream.append("\n");
  }
  const edits =
    join &&
    [
      `${num(join.inserted)} context`,
      join.dropped > 0 && `${num(join.dropped)} dropped`,
      join.residual > 0 && `residual ${num(join.residual)}`,
    ]
      .filter(Boolean)
      .join(" · ");
  return h(
    "div",
    { class: "block" },
    h(
      "h3",
      {},
      h("button", { type: "button", class: "plain", "data-block": turn }, `Turn ${turn + 1}`),
      join && h("span", { class: `case ${join.case}` }, join.case),
      join && h("span", { class: "dim" }, edits),
    ),
    stream,
  );
}

/** What the colours mean. */
function explain(legend, hint, { ends, kinds }) {
  const chips = kinds
    ? kinds
        .slice(0, 12)
        .map((name, i) => h("span", { class: `chip lit ${kinds.length > 1 ? `kind${i % 6}` : ""}` }, name))
    : null;
  const scale =
    ends && h("span", { class: "scale" }, ends[0], h("i", { class: ends.length > 2 ? "both" : "" }), ends.at(-1));
  for (const chip of chips ?? []) chip.style.setProperty("--w", "0.7");
  legend.replaceChildren(hint, " ", ...(chips ?? [scale]));
}

/** What is known of one token. */
function inspect(about, c, t) {
  if (!(t >= 0 && t < c.ids.length)) {
    about.replaceChildren(
      h(
        "div",
        { class: "hint" },
        h("dt", { class: "sr" }, "Token"),
        h("dd", {}, "Point at a token, or press ← and → on the text."),
      ),
    );
    return;
  }
  const value = (name, digits = 4) => (c[name]?.[t] != null ? num(c[name][t], digits) : "–");
  const fields = [
    ["Token", c.text[t] === null ? "–" : safe(c.text[t]), "mono"],
    ["Id", String(c.ids[t])],
    ["Place", num(t)],
    ["Turn", String(c.turn[t] + 1)],
    ["Is", c.mask[t] ? "sampled" : "context"],
    ["Weights", c.mask[t] ? `v${c.version[t]}` : "–"],
    ["Routed again", c.agreement?.[t] == null ? "–" : `${num(100 * c.agreement[t], 0)} %`],
    ["p", c.logprob[t] === null ? "–" : num(Math.exp(c.logprob[t]))],
    ["log p, engine", value("logprob")],
    ["log p, trainer", value("trainer_logprob")],
    ["Gap", value("gap", 5)],
    ["Value", value("value", 3)],
    ["Advantage", value("advantage", 3)],
    ["Return", value("return", 3)],
  ];
  about.replaceChildren(
    ...fields.map(([name, text, kind]) => h("div", {}, h("dt", {}, name), h("dd", { class: kind, title: text }, text))),
  );
}

const HIDDEN =
  /[\u0000-\u001f\u007f-\u009f\u00ad\u061c\u115f\u1160\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff9-\ufffb\ud800-\udfff]|[\u{e0000}-\u{e0fff}]/gu;
const safe = (text) =>
  text
    .replace(/\n/g, "⏎")
    .replace(/\t/g, "⇥")
    .replace(HIDDEN, (c) => `⟨${c.codePointAt(0).toString(16).toUpperCase()}⟩`);
