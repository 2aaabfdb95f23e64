// The verdict on a run: what did not pass, each with its number, the command that shows it again and the place to look.
import { h, link, num } from "/page/dom.js";
import { grade } from "/page/runs.js";

/** Where on this page a rule's cases are. */
const PLACES = {
  drift: { finding: "any" },
  findings: { finding: "any" },
  routing: { finding: "any" },
  residual: { sort: "residual", descending: "1" },
  tampering: { outcome: "tampered" },
  failures: { outcome: "failed" },
};

/** The section of a verdict; `found` is verdict.json, or nothing. */
export function verdict(run, found) {
  if (!found?.checks) {
    const why = found?.damaged ? `verdict.json: ${found.damaged}. ` : "";
    return h(
      "p",
      { class: "note" },
      `${why}No verdict yet: it is written at the end of the run, or by `,
      h("code", {}, "t1 verdict RUN"),
      ".",
    );
  }
  const open = found.checks.filter((check) => check.grade !== "pass"),
    passed = found.checks.length - open.length;
  return h(
    "section",
    { class: `verdict ${found.grade}`, "aria-label": "Verdict" },
    h("h2", {}, grade(found.grade), h("span", { class: "dim" }, `${passed} of ${found.checks.length} rules passed`)),
    open.length > 0 &&
      h(
        "ul",
        { class: "checks" },
        open.map((check) => row(run, check)),
      ),
    passed > 0 &&
      h(
        "details",
        {},
        h("summary", {}, "What passed"),
        h(
          "ul",
          { class: "checks" },
          found.checks.filter((check) => check.grade === "pass").map((check) => row(run, check)),
        ),
      ),
  );
}

function row(run, check) {
  const place = PLACES[check.rule];
  return h(
    "li",
    { class: check.grade },
    h(
      "span",
      { class: "rule" },
      { pass: "✓", warn: "!", fail: "✕" }[check.grade],
      " ",
      check.rule.replaceAll("_", " "),
    ),
    h("span", { class: "n" }, num(check.number)),
    h(
      "div",
      {},
      check.says,
      place && check.grade !== "pass" && [" ", h("a", { href: link("rollouts", { run, ...place }) }, "Show them")],
      check.grade !== "pass" &&
        h("div", { class: "again" }, h("code", {}, check.command), h("span", { class: "dim" }, ` → ${check.look}`)),
      check.details.length > 0 &&
        h(
          "details",
          {},
          h("summary", {}, check.details.length === 1 ? "1 case" : `${check.details.length} cases`),
          h(
            "ul",
            {},
            check.details.map((one) => h("li", {}, one)),
          ),
        ),
    ),
  );
}
