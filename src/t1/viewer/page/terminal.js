// The terminal of a rollout, turn by turn. The server replays control sequences; here are only runs of text and classes.
import { h, ask, num, secs, present } from "/page/dom.js";

const runsOf = (runs) => runs.map(([text, style]) => (style ? h("span", { class: style }, text) : text));

/** A text that the server has rendered, without a way to ask for more of it. */
export const still = (shown, label = "text") =>
  h(
    "pre",
    { class: "screen", dir: "ltr", tabindex: "0", role: "group", "aria-label": label },
    runsOf(shown.runs),
    shown.left_out > 0 && gap(shown),
    runsOf(shown.tail),
  );

const gap = (shown) => h("span", { class: "left-out" }, `\n… ${num(shown.left_out)} characters left out …\n`);

/** One turn: what the policy did, and what the terminal said. `where`: {run, key}. */
export function turn(where, found, also = null) {
  const model = found.timings.prefill_s + found.timings.decode_s;
  return h(
    "article",
    { class: "turn", id: `turn-${found.index + 1}`, "data-turn": found.index },
    h(
      "h3",
      {},
      h(
        "a",
        { class: "number", href: `#turn-${found.index + 1}`, "data-goto": found.index },
        `Turn ${found.index + 1}`,
      ),
      also,
      h(
        "span",
        { class: "dim" },
        `weights v${found.versions.join(", v")} · ${num(found.sampled_tokens)} of ${num(found.prompt_tokens + found.sampled_tokens)} tokens sampled · ${found.finish}`,
        ` · model ${secs(model)} · shell ${secs(found.sandbox_s)}`,
      ),
    ),
    part(where, found, "action", "what the policy wrote"),
    part(where, found, "observation", "what the terminal showed"),
  );
}

function part(where, found, name, label) {
  const shown = found[name];
  if (!shown.runs.length) return null;
  const pre = h("pre", {
    class: "screen",
    dir: "ltr",
    tabindex: "0",
    role: "group",
    "aria-label": `Turn ${found.index + 1}: ${label}`,
  });
  const foot = h("p", { class: "note" }),
    box = h("div", { class: name }, pre, foot);
  const all = async (raw, start = 0) => {
    const got = await ask("text", { ...where, turn: found.index, name, raw: raw ? "1" : "", start });
    if (start) pre.append(...runsOf(got.runs));
    else pre.replaceChildren(...runsOf(got.runs));
    tell({ ...got, raw, left_out: 0, whole: true });
  };
  const press = (words, action) => h("button", { type: "button", class: "plain", onclick: action }, words);
  const first = () => {
    pre.replaceChildren(...present([runsOf(shown.runs), shown.left_out > 0 && gap(shown), runsOf(shown.tail)]));
    tell({ ...shown, raw: false });
  };
  const tell = (now) => {
    const notes = [
      now.raw ? "as it was written" : shown.replayed && "as a terminal shows it",
      now.dropped > 0 && `${num(now.dropped)} control strings taken out`,
      now.late && "the end was too long to replay",
    ]
      .filter(Boolean)
      .join(" · ");
    foot.replaceChildren(
      ...present([
        notes,
        now.left_out > 0 && press("show all", () => all(false)),
        now.next && press(`show more (${num(now.size)} in all)`, () => all(now.raw, now.next)),
        shown.replayed && (now.raw ? press("replayed", first) : press("raw", () => all(true))),
      ]),
    );
  };
  first();
  return box;
}
