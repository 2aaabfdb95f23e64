// A run: the verdict on it, its results, its curves (live while it is written, beside those of another run), its settings.
import { h, ask, link, num, pct, secs, empty, repeat } from "/page/dom.js";
import { chart } from "/page/charts.js";
import { go } from "/page/app.js";
import { verdict } from "/page/verdict.js";

const CURVES = [
  ["reward", "Mean reward"],
  ["solve_rate", "Solve rate", pct],
  ["mean_passed_assertions", "Passed assertions"],
  ["gap", "Gap |Δ log-prob|"],
  ["explained_variance", "Value fit"],
  ["approx_kl", "KL to the step's first policy"],
  ["loss", "Policy loss"],
  ["mean_turns", "Turns per rollout"],
  ["mean_sampled_tokens", "Tokens per rollout"],
  ["tokens_per_s", "Tokens per second"],
  ["wall_s", "Seconds per step", secs],
  ["routing_disagreement", "Routing disagreement", pct],
  ["money", "Cost per step"],
  ["findings", "Findings of the auditor"],
  ["failures", "Infrastructure failures"],
];
const POLL_MS = 2000;

/** A run's overview; `beside`: the name of another run whose curves are drawn too. */
export async function overview({ run, beside }, signal) {
  const [facts, all] = await Promise.all([ask("run", { run }, signal), ask("runs", {}, signal)]);
  const mine = reader(run, signal),
    other = beside ? reader(beside, signal) : null;
  const box = h("section", { class: "charts", "aria-label": "Curves" }),
    state = h("p", { class: "dim", role: "status" });
  const read = async () => {
    const changed = [await mine.read(), other && (await other.read())].some(Boolean);
    if (changed || !box.childElementCount) draw(box, mine, other);
    const steps = mine.records.filter((record) => record.stage === "rl").length;
    state.replaceChildren(
      mine.live ? h("span", { class: "livemark" }, "training") : "finished",
      ` · ${num(steps)} steps of PPO`,
    );
    return mine.live || other?.live;
  };
  if (await read())
    repeat(POLL_MS, signal, read, (error) => {
      state.textContent = error.message;
    });
  const others = all.filter((one) => one.name !== run);
  return [
    h(
      "div",
      { class: "title" },
      h("h1", {}, run),
      state,
      h("span", { class: "gap" }),
      others.length > 0 && chooser(run, beside, others),
    ),
    verdict(run, facts.verdict),
    stages(facts.report.stages ?? {}),
    box,
    folded("Configuration", facts.config || "config.toml is missing"),
    folded("Environment and pins", JSON.stringify({ ...facts.environment, pins: facts.pins }, null, 2)),
  ];
}

const folded = (title, text) => h("details", {}, h("summary", {}, title), h("pre", { tabindex: "0" }, text));

function chooser(run, beside, others) {
  const choose = (event) => go(link("run", { run, beside: event.target.value }));
  return h(
    "label",
    { class: "inline" },
    "Curves beside",
    h(
      "select",
      { id: "beside", onchange: choose },
      h("option", { value: "" }, "no other run"),
      others.map(({ name }) => h("option", { value: name, selected: name === beside }, name)),
    ),
  );
}

/** Reads a run's metrics from where it was; `records` grow, and begin anew where a resume cut the file. */
function reader(run, signal) {
  const found = { run, records: [], live: false, read };
  let next = 0;
  async function read() {
    let changed = false;
    for (let more = true; more;) {
      const got = await ask("metrics", { run, since: next }, signal);
      if (got.restarted) found.records.length = 0;
      found.records.push(...got.records);
      changed ||= got.restarted || got.records.length > 0;
      ({ next, more } = got);
      found.live = got.live;
    }
    return changed;
  }
  return found;
}

function draw(box, mine, other) {
  const points = (from, stage, name) =>
    (from?.records ?? [])
      .filter((r) => r.stage === stage && Number.isFinite(r[name]))
      .map((r) => ({ x: r.step, y: r[name] }));
  const made = [];
  for (const [name, title, format, stage = "rl"] of [...CURVES, ["loss", "SFT loss", num, "sft"]]) {
    const series = [mine, other].filter(Boolean).map((from) => ({ name: from.run, points: points(from, stage, name) }));
    const flat = series.every((one) => one.points.every((point) => point.y === 0));
    if (series[0].points.length && !(flat && name === "money")) made.push(chart(title, series, format));
  }
  box.replaceChildren(...(made.length ? made : [empty("No metrics yet", "Curves appear here after the first step.")]));
}

/** How each evaluated stage did, with its interval on one common scale. */
function stages(found) {
  const list = Object.entries(found);
  if (!list.length) return null;
  return h(
    "section",
    { class: "stages", "aria-label": "Held-out tasks" },
    list.map(([name, stage]) => {
      const bar = h(
        "span",
        {
          class: "interval",
          role: "img",
          "aria-label": `95 % interval ${pct(stage.ci95?.[0])} to ${pct(stage.ci95?.[1])}`,
        },
        h("i"),
        h("b"),
      );
      bar.style.setProperty("--low", stage.ci95?.[0] ?? stage.solve_rate);
      bar.style.setProperty("--high", stage.ci95?.[1] ?? stage.solve_rate);
      bar.style.setProperty("--at", stage.solve_rate);
      return h(
        "div",
        {},
        h("span", { class: "dim" }, name),
        h("strong", {}, pct(stage.solve_rate)),
        bar,
        h(
          "span",
          { class: "dim" },
          stage.ci95 ? `${pct(stage.ci95[0])} – ${pct(stage.ci95[1])}` : "",
          ` · ${num(stage.num_rollouts)} rollouts`,
        ),
      );
    }),
  );
}
