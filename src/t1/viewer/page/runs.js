// The list of runs.
import { h, ask, link, num, pct, ago, table, repeat } from "/page/dom.js";

const POLL_MS = 5000;
const GRADES = { pass: "✓ trusted", warn: "! with reservations", fail: "✕ not trusted" };
/** A verdict in a word. */
export const grade = (name) =>
  GRADES[name] ? h("span", { class: `grade ${name}` }, GRADES[name]) : h("span", { class: "dim" }, "–");

/** All runs. */
export async function runs(params, signal) {
  const box = h("div");
  const draw = async () => {
    const found = await ask("runs", {}, signal);
    if (!box.contains(document.activeElement)) {
      box.replaceChildren(
        table("Runs", ["Run", "State", "Verdict", "Solved", { n: "Files" }, "Changed"], found.map(row)),
      );
    }
    return true;
  };
  await draw();
  repeat(POLL_MS, signal, draw);
  return [h("div", { class: "title" }, h("h1", {}, "Runs")), box];
}

function row(run) {
  const stages = Object.entries(run.report);
  return h(
    "tr",
    {},
    h("th", { scope: "row" }, h("a", { href: link("run", { run: run.name }) }, run.name)),
    h("td", {}, run.live ? h("span", { class: "livemark" }, "training") : h("span", { class: "dim" }, "finished")),
    h("td", {}, grade(run.grade)),
    h(
      "td",
      {},
      stages.length
        ? stages.map(([name, stage], i) => [
            i > 0 && h("span", { class: "dim" }, " → "),
            h("span", { class: "dim" }, `${name} `),
            pct(stage.solve_rate),
          ])
        : h("span", { class: "dim" }, "–"),
    ),
    h("td", { class: "n" }, num(run.num_files)),
    h("td", { class: "dim", title: new Date((run.changed ?? 0) * 1000).toLocaleString() }, ago(run.changed ?? 0)),
  );
}
