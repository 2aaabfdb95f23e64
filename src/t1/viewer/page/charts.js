// Small line charts of runs' metrics, as SVG that a pointer or the arrow keys read step by step.
import { h, s, num } from "/page/dom.js";

const W = 320,
  H = 116,
  PAD = 6;

/** A figure of one metric: series [{name, points: [{x, y}] in the order of steps}], the run's own one first. */
export function chart(title, series, format = num) {
  const own = series[0].points,
    every = series.flatMap((one) => one.points);
  const [left, right] = [Math.min(...every.map((p) => p.x)), Math.max(...every.map((p) => p.x))];
  const [low, high] = [Math.min(...every.map((p) => p.y)), Math.max(...every.map((p) => p.y))];
  const px = (x) => PAD + ((x - left) / (right - left || 1)) * (W - 2 * PAD);
  const py = (y) => (high === low ? H / 2 : H - PAD - ((y - low) / (high - low)) * (H - 2 * PAD));
  const path = (points) => points.map((p, i) => `${i ? "L" : "M"}${px(p.x).toFixed(1)} ${py(p.y).toFixed(1)}`).join("");
  const last = own.at(-1);
  const dot = s("circle", { r: 3.5, class: "dot" }),
    rule = s("path", { class: "rule" });
  const value = h("strong", { class: "reading" }),
    where = h("span", { class: "dim" });
  const words = `${title}: ${format(own[0].y)} at step ${own[0].x}, ${format(last.y)} at step ${last.x}; from ${format(low)} to ${format(high)}. Arrow keys read single steps.`;
  const svg = s(
    "svg",
    { viewBox: `0 0 ${W} ${H}`, preserveAspectRatio: "none", tabindex: "0", role: "img", "aria-label": words },
    [0.25, 0.5, 0.75].map((part) => s("path", { d: `M0 ${(H * part).toFixed(1)}H${W}`, class: "grid" })),
    s("path", { d: `M0 ${H - 0.5}H${W}`, class: "axis" }),
    rule,
    series.slice(1).map((one) => s("path", { d: path(one.points), class: "line other" })),
    s("path", { d: path(own), class: "line" }),
    own.length === 1 && dot,
  );
  let at = own.length - 1;
  const point = (index) => {
    at = Math.max(0, Math.min(own.length - 1, index));
    const { x, y } = own[at];
    rule.setAttribute("d", at === own.length - 1 ? "" : `M${px(x).toFixed(1)} 0V${H}`);
    dot.setAttribute("cx", px(x));
    dot.setAttribute("cy", py(y));
    const others = series
      .slice(1)
      .map((one) => one.points.find((p) => p.x === x))
      .filter(Boolean);
    value.textContent = [y, ...others.map((p) => p.y)].map((v) => format(v)).join(" · ");
    where.textContent = `step ${x}`;
  };
  svg.addEventListener("pointermove", (event) => {
    const box = svg.getBoundingClientRect();
    const x = left + ((((event.clientX - box.left) / box.width) * W - PAD) / (W - 2 * PAD)) * (right - left);
    point(own.reduce((best, p, i) => (Math.abs(p.x - x) < Math.abs(own[best].x - x) ? i : best), 0));
  });
  svg.addEventListener("pointerleave", () => point(own.length - 1));
  svg.addEventListener("keydown", (event) => {
    const by = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (by) {
      event.preventDefault();
      point(at + by);
    }
  });
  point(at);
  return h(
    "figure",
    {},
    h("figcaption", {}, h("span", {}, title), where, value),
    svg,
    h(
      "div",
      { class: "range dim" },
      h("span", {}, low === high ? `always ${format(low)}` : `${format(low)} … ${format(high)}`),
      series.length > 1 &&
        h("span", {}, h("i", { class: "key" }), series[0].name, " ", h("i", { class: "key other" }), series[1].name),
    ),
  );
}
