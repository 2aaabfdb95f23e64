// One rollout: the terminal turn by turn beside its tokens; or two of them side by side.
import { h, ask, link, num, secs, badge } from "/page/dom.js";
import { screen } from "/page/terminal.js";
import { tokens } from "/page/tokens.js";

/** A rollout by its key. */
export async function rollout({ run, key }, signal) {
  const found = await ask("rollout", { run, key }, signal);
  const { siblings, row } = found, at = siblings.findIndex((other) => other.key === key);
  const step = (other, props, sign) => other && h("a", { class: "button", href: link("rollout", { run, key: other.key }), ...props }, sign);
  const others = siblings.filter((other) => other.key !== key);
  const panel = await tokens(run, key, found, signal);
  return [h("div", { class: "title" }, h("a", { class: "button", href: link("rollouts", { run, step: row.step }), "data-up": true }, "↑ list"),
      h("h1", {}, row.task), badge(row.outcome), h("span", { class: "dim" }, `${row.step} · group ${row.group} · member ${row.member}`), h("span", { class: "gap" }),
      step(siblings[at - 1], { "data-previous": true }, "← member"), step(siblings[at + 1], { "data-next": true }, "member →"),
      others.length > 0 && h("a", { class: "button", href: link("compare", { run, a: key, b: others[0].key }) }, "Compare")),
    facts(found), h("div", { class: "split" }, h("section", { "aria-label": "Terminal" }, h("h2", {}, "Terminal"), terminal(run, key, found)), panel)];
}

/** Two rollouts side by side; the second one is chosen among the group of the first. */
export async function compare({ run, a, b }, signal) {
  const [one, two] = await Promise.all([a, b].map((key) => ask("rollout", { run, key }, signal)));
  const side = (found, key) => h("section", { "aria-label": found.row.key }, h("h2", {}, h("a", { href: link("rollout", { run, key }) }, `${found.row.step} · ${found.task} · ${found.group}/${found.member}`), " ", badge(found.row.outcome)), facts(found), terminal(run, key, found));
  const choices = one.siblings.filter((other) => other.key !== a);
  return [h("div", { class: "title" }, h("h1", {}, "Side by side"), choices.length > 1 && h("span", { class: "dim" }, "with member ", choices.map((other) => h("a", { class: "button", "aria-current": other.key === b ? "true" : null, href: link("compare", { run, a, b: other.key }) }, other.member)))),
    h("div", { class: "split" }, side(one, a), side(two, b))];
}

function facts(found) {
  const { timings: t, usage: u } = found;
  const fact = (name, value, hint) => h("div", { title: hint }, h("dt", {}, name), h("dd", {}, value));
  return [h("dl", { class: "facts" }, fact("Reward", num(found.reward), found.reward_source), fact("Stop", found.stop), fact("Turns", num(found.turns.length)),
      fact("Sampled", num(u.tokens_out)), fact("Prompt", `${num(u.tokens_in)} (${num(u.tokens_cached)} cached)`), fact("Wall", secs(t.wall_s)),
      fact("Engine", secs(t.engine_s), `queue ${secs(t.queue_s)}`), fact("Sandbox", secs(t.sandbox_s)), fact("Verifier", secs(t.verifier_s)),
      found.priced && fact("Cost", num(u.money, 4)), found.attempts > 1 && fact("Launches", num(found.attempts))),
    found.failure && h("p", { class: "alarm" }, h("b", {}, `✕ ${found.failure.kind}`), ` ${found.failure.message}`),
    found.tamper.map((e) => h("p", { class: e.level === "tampering" ? "alarm" : "note" }, h("b", {}, `⚠ ${e.rule}`), ` ${e.path} ${e.message} (${e.level})`)),
    found.findings.map((f) => h("p", { class: "alarm" }, h("b", {}, `${f.severity}: ${f.rule}`), ` ${f.where}: ${f.message} `, h("span", { class: "dim" }, `${f.meaning} ${f.remedy}`))),
    found.assertions ? h("ul", { class: "assertions", "aria-label": "Assertions" }, found.assertions.map((a) => h("li", { class: a.status }, { passed: "✓", failed: "✕", error: "!", skipped: "–" }[a.status], " ", a.name, h("span", { class: "dim" }, ` ${a.status}`), a.message && h("pre", {}, a.message))))
      : h("p", { class: "note" }, found.report_error || "No assertions: nothing was verified.")];
}

function terminal(run, key, found) {
  const whole = (name, turn, box) => async () => {
    const { text } = await ask("text", { run, key, turn, name });
    box.replaceChildren(...screen({ text, left_out: 0 }).filter(Boolean));
  };
  const part = (name, turn) => {
    const box = h("div", { class: name });
    if (turn[name].text) box.append(...screen(turn[name], whole(name, turn.index, box)).filter(Boolean));
    return box;
  };
  return [found.prompt.text && h("details", {}, h("summary", {}, "Instruction, as the policy saw it"), screen(found.prompt, () => {})),
    found.turns.map((turn) => h("article", { class: "turn", id: `turn-${turn.index}` },
      h("h3", {}, `Turn ${turn.index + 1}`, h("span", { class: "dim" }, `v${turn.versions.join(",")} · ${num(turn.sampled_tokens)} tokens · ${turn.finish} · model ${secs(turn.timings.prefill_s + turn.timings.decode_s)} · shell ${secs(turn.sandbox_s)}`)),
      part("action", turn), part("observation", turn)))];
}
