// Two rollouts side by side, turn beside turn; the first turn in which they part is marked.
import { h, ask, link, badge } from "/page/dom.js";
import { evidence, facts } from "/page/rollout.js";
import { turn } from "/page/terminal.js";

/** `a` and `b` are keys; the second one is chosen among the group of the first. */
export async function compare({ run, a, b }, signal) {
  const [one, two] = await Promise.all([a, b].map((key) => ask("rollout", { run, key }, signal)));
  const parts = parting(one, two),
    pairs = Math.max(one.turns.length, two.turns.length);
  const others = one.siblings.filter((other) => other.key !== a);
  return [
    h(
      "div",
      { class: "title" },
      h("a", { class: "button", href: link("rollout", { run, key: a }), "data-key": "u" }, "↑ Rollout"),
      h("h1", {}, one.task === two.task ? one.task : "Side by side"),
      h("span", { class: "dim" }, parts < 0 ? "the same, turn for turn" : `apart from turn ${parts + 1} on`),
      h("span", { class: "gap" }),
      parts > 0 && h("a", { class: "button", "data-key": "n", href: `#pair-${parts + 1}` }, "Where they part"),
      others.length > 1 &&
        h(
          "span",
          { class: "members" },
          h("span", { class: "dim" }, "Right:"),
          others.map((other) =>
            h(
              "a",
              {
                class: "button",
                "aria-current": other.key === b ? "true" : null,
                href: link("compare", { run, a, b: other.key }),
              },
              `member ${other.member}`,
            ),
          ),
        ),
    ),
    h("div", { class: "pair" }, column(run, a, one), column(run, b, two)),
    Array.from({ length: pairs }, (_, i) =>
      h(
        "div",
        { class: `pair${i === parts ? " parting" : ""}`, id: `pair-${i + 1}` },
        cell(run, a, one.turns[i], "a"),
        cell(run, b, two.turns[i], "b"),
      ),
    ),
  ];
}

/** The first turn whose actions differ; −1 where there is none. */
function parting(one, two) {
  const said = (found, i) => found.turns[i] && JSON.stringify(found.turns[i].action.runs);
  const length = Math.max(one.turns.length, two.turns.length);
  for (let i = 0; i < length; i += 1) if (said(one, i) !== said(two, i)) return i;
  return -1;
}

const column = (run, key, found) =>
  h(
    "section",
    { "aria-label": found.row.key },
    h(
      "h2",
      {},
      h(
        "a",
        { href: link("rollout", { run, key }) },
        `${found.row.step} · group ${found.group} · member ${found.member}`,
      ),
      " ",
      badge(found.row.outcome),
    ),
    facts(found),
    evidence(found),
  );

function cell(run, key, found, side) {
  if (!found) return h("div", { class: "ended dim" }, "ended before");
  const node = turn({ run, key }, found);
  node.id = `${node.id}-${side}`;
  node.querySelector(".number").replaceWith(`Turn ${found.index + 1}`);
  return node;
}
