// A line for each step of a run: how its rollouts ended.
import { h, ask, link, num, pct, secs, empty, table, repeat } from "/page/dom.js";

const POLL_MS = 5000;
const HEADS = [
  "Step",
  { n: "Rollouts" },
  "Outcomes",
  { n: "Solved" },
  { n: "Reward" },
  { n: "Turns" },
  { n: "Tokens" },
  { n: "Each took" },
  { n: "Findings" },
];

/** The steps, renewed while the run goes on. */
export async function steps({ run }, signal) {
  const box = h("div"),
    status = h("p", { class: "dim", role: "status" });
  const draw = async () => {
    const { steps: found, audit, live } = await ask("steps", { run }, signal);
    status.textContent =
      audit.audited < audit.files
        ? `${audit.audited} of ${audit.files} files audited`
        : `${num(found.length)} files, all audited`;
    if (!box.contains(document.activeElement)) {
      box.replaceChildren(
        found.length
          ? table(
              "Steps",
              HEADS,
              found.map((step) => row(run, step)),
            )
          : empty("No rollouts yet", "They are written at the end of each step."),
      );
    }
    return live || audit.audited < audit.files;
  };
  if (await draw()) repeat(POLL_MS, signal, draw);
  return [h("div", { class: "title" }, h("h1", {}, "Steps"), status), box];
}

function row(run, step) {
  const to = (query) => link("rollouts", { run, step: step.step, ...query });
  return h(
    "tr",
    {},
    h("th", { scope: "row" }, h("a", { href: to({}) }, step.step)),
    step.error
      ? h("td", { colspan: 8, class: "error" }, step.error)
      : [
          h("td", { class: "n" }, num(step.rollouts)),
          h("td", {}, bar(step.outcomes, step.rollouts)),
          h("td", { class: "n" }, pct(step.outcomes.solved / Math.max(step.rollouts, 1))),
          h("td", { class: "n" }, num(step.reward)),
          h("td", { class: "n" }, num(step.turns, 1)),
          h("td", { class: "n" }, num(step.sampled)),
          h("td", { class: "n" }, secs(step.wall_s)),
          h(
            "td",
            { class: "n" },
            step.findings
              ? h("a", { class: "error", href: to({ finding: "any" }) }, step.findings)
              : h("span", { class: "dim" }, "0"),
          ),
        ],
  );
}

function bar(outcomes, total) {
  const words = Object.entries(outcomes)
    .filter(([, count]) => count)
    .map(([name, count]) => `${count} ${name}`)
    .join(", ");
  return h(
    "span",
    { class: "bar", role: "img", "aria-label": words, title: words },
    Object.entries(outcomes).map(([name, count]) => {
      const part = h("i", { class: name });
      part.style.setProperty("width", `${(100 * count) / Math.max(total, 1)}%`);
      return part;
    }),
  );
}
