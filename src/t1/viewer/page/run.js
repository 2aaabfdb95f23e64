// The list of runs, a run's curves (live while it is written), its steps.
import { h, ask, link, num, pct, secs, empty } from "/page/dom.js";
import { chart } from "/page/charts.js";

const CURVES = [["reward", "Mean reward"], ["solve_rate", "Solve rate", pct], ["gap", "Gap |Δ log-prob|"], ["explained_variance", "Value fit"],
  ["loss", "Policy loss"], ["approx_kl", "KL to old policy"], ["mean_turns", "Turns per rollout"], ["mean_sampled_tokens", "Tokens per rollout"],
  ["tokens_per_s", "Tokens per second"], ["routing_disagreement", "Routing disagreement", pct], ["findings", "Findings"], ["failures", "Infrastructure failures"]];
const POLL_MS = 2000;

/** All runs. */
export async function runs(params, signal) {
  const found = await ask("runs", {}, signal);
  const rows = found.map((run) => h("tr", {},
    h("th", { scope: "row" }, h("a", { href: link("run", { run: run.name }) }, run.name)),
    h("td", {}, run.live ? h("span", { class: "livemark" }, "● writing") : "–"),
    h("td", { class: "n" }, num(run.num_files)),
    h("td", { class: "n" }, Object.entries(run.report).map(([name, stage]) => `${name} ${pct(stage.solve_rate)}`).join(" → ") || "–"),
    h("td", {}, new Date((run.changed ?? 0) * 1000).toLocaleString())));
  return [h("h1", {}, "Runs"), table(["Run", "State", "Files", "Solved", "Changed"], rows)];
}

const table = (heads, rows) => h("div", { class: "wide", tabindex: "0", role: "region", "aria-label": "table" },
  h("table", {}, h("thead", {}, h("tr", {}, heads.map((name) => h("th", { scope: "col" }, name)))), h("tbody", {}, rows)));

/** A run: results, curves, configuration. */
export async function overview({ run }, signal) {
  const facts = await ask("run", { run }, signal);
  const records = [], box = h("section", { class: "charts", "aria-label": "Curves" }), state = h("p", { class: "dim", role: "status" });
  let next = 0;
  const read = async () => {
    for (let more = true; more;) {
      const got = await ask("metrics", { run, since: next }, signal);
      if (got.restarted) { records.length = 0; }
      records.push(...got.records);
      ({ next, more } = got);
      if (!more) {
        if (got.records.length || !box.childElementCount) draw(box, records);
        state.replaceChildren(got.live ? h("span", { class: "livemark" }, "● live") : "finished", ` · ${num(records.length)} records`);
        return got.live;
      }
    }
  };
  const again = async () => {
    if (signal.aborted) return;
    try { if (!(await read())) return; } catch (error) { if (error.name === "AbortError") return; state.textContent = error.message; }
    setTimeout(again, POLL_MS);
  };
  if (await read()) setTimeout(again, POLL_MS);
  const stages = Object.entries(facts.report.stages ?? {});
  return [h("div", { class: "title" }, h("h1", {}, run), state),
    stages.length > 0 && h("section", { class: "stages" }, stages.map(([name, stage]) => h("div", {}, h("span", { class: "dim" }, name), h("b", {}, pct(stage.solve_rate)),
      h("span", { class: "dim" }, stage.ci95 ? `95% ${pct(stage.ci95[0])} – ${pct(stage.ci95[1])}` : "", ` · ${num(stage.num_rollouts)} rollouts`)))),
    box,
    h("details", {}, h("summary", {}, "Configuration"), h("pre", {}, facts.config || "config.toml is missing")),
    h("details", {}, h("summary", {}, "Environment and pins"), h("pre", {}, JSON.stringify({ ...facts.environment, pins: facts.pins }, null, 2)))];
}

function draw(box, records) {
  const parts = [];
  const rl = records.filter((r) => r.stage === "rl"), sft = records.filter((r) => r.stage === "sft");
  const line = (from, name, title, format) => {
    const points = from.filter((r) => Number.isFinite(r[name])).map((r) => ({ x: r.step, y: r[name] }));
    if (points.length) parts.push(chart(title, points, format));
  };
  CURVES.forEach(([name, title, format]) => line(rl, name, title, format));
  line(sft, "loss", "SFT loss");
  box.replaceChildren(...(parts.length ? parts : [empty("No metrics yet", "Curves appear here after the first step.")]));
}

/** A line for each step file. */
export async function steps({ run }, signal) {
  const { steps: found, audit } = await ask("steps", { run }, signal);
  if (!found.length) return empty("No rollouts yet", "They are written at the end of each step.");
  const rows = found.map((step) => h("tr", {},
    h("th", { scope: "row" }, h("a", { href: link("rollouts", { run, step: step.step }) }, step.step)),
    step.error ? h("td", { colspan: 7, class: "error" }, step.error) : [
      h("td", { class: "n" }, num(step.rollouts)),
      h("td", { class: "n" }, bar(step.outcomes, step.rollouts), pct(step.outcomes.solved / Math.max(step.rollouts, 1))),
      h("td", { class: "n" }, num(step.reward)), h("td", { class: "n" }, num(step.turns, 1)), h("td", { class: "n" }, num(step.sampled)),
      h("td", { class: "n" }, secs(step.wall_s)), h("td", { class: "n" }, step.findings ? h("a", { href: link("rollouts", { run, step: step.step, finding: "any" }) }, step.findings) : "0")]));
  return [h("div", { class: "title" }, h("h1", {}, "Steps"), h("p", { class: "dim" }, `${audit.audited} of ${audit.files} files audited`)),
    table(["Step", "Rollouts", "Solved", "Reward", "Turns", "Tokens", "Seconds each", "Findings"], rows)];
}

function bar(outcomes, total) {
  const box = h("span", { class: "bar", role: "img", "aria-label": Object.entries(outcomes).map(([k, v]) => `${v} ${k}`).join(", ") });
  for (const [name, count] of Object.entries(outcomes)) {
    const part = h("i", { class: name });
    part.style.setProperty("width", `${(100 * count) / Math.max(total, 1)}%`);
    box.append(part);
  }
  return box;
}
