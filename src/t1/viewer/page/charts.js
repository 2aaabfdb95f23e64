// Small line charts of a run's metrics, as SVG with a table's worth of words for screen readers.
import { h, s, num } from "/page/dom.js";

const W = 320, H = 110, PAD = 6;

/** A figure of one metric: points [{x, y}] in the order of steps. */
export function chart(title, points, format = num) {
  const last = points.at(-1);
  const ys = points.map((p) => p.y), xs = points.map((p) => p.x);
  const [low, high] = [Math.min(...ys), Math.max(...ys)];
  const [left, right] = [Math.min(...xs), Math.max(...xs)];
  const px = (x) => PAD + ((x - left) / (right - left || 1)) * (W - 2 * PAD);
  const py = (y) => H - PAD - ((y - low) / (high - low || 1)) * (H - 2 * PAD);
  const path = points.map((p, i) => `${i ? "L" : "M"}${px(p.x).toFixed(1)} ${py(p.y).toFixed(1)}`).join("");
  const dot = s("circle", { r: 3.5, class: "dot", cx: px(last.x), cy: py(last.y) });
  const value = h("output", {}, format(last.y)), where = h("span", { class: "dim" }, `step ${last.x}`);
  const svg = s("svg", { viewBox: `0 0 ${W} ${H}`, role: "img", "aria-label": `${title}: ${format(points[0].y)} at step ${left}, ${format(last.y)} at step ${right}; from ${format(low)} to ${format(high)}` },
    s("path", { d: `M0 ${H - 0.5}H${W}`, class: "axis" }), s("path", { d: path, class: "line" }), dot);
  const point = (p) => {
    dot.setAttribute("cx", px(p.x)); dot.setAttribute("cy", py(p.y));
    value.textContent = format(p.y); where.textContent = `step ${p.x}`;
  };
  svg.addEventListener("pointermove", (event) => {
    const box = svg.getBoundingClientRect();
    const x = left + ((((event.clientX - box.left) / box.width) * W - PAD) / (W - 2 * PAD)) * (right - left);
    point(points.reduce((a, b) => (Math.abs(b.x - x) < Math.abs(a.x - x) ? b : a)));
  });
  svg.addEventListener("pointerleave", () => point(last));
  return h("figure", {}, h("figcaption", {}, h("span", {}, title), where, value), svg, h("div", { class: "range dim" }, h("span", {}, format(low)), h("span", {}, format(high))));
}
