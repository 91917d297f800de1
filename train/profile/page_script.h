// The script of the profile's page, first part: the data, figures as text, the head of the page and
// the largest owners. It computes nothing but how to show what profile_json() says.
#pragma once

namespace duet {

inline constexpr const char* kProfileScript = R"js(
const data = JSON.parse(document.getElementById("profile-data").textContent);
const rows = data.rows, kinds = data.kinds;
const kindKeys = ["temporary", "parameters", "gradients", "optimizer", "saved"];
const stack = [1, 3, 2, 4, 0];  // what lives longest lies lowest
const byId = (id) => document.getElementById(id);

function el(tag, attributes, ...children) {
  const out = document.createElement(tag);
  for (const [key, value] of Object.entries(attributes ?? {})) out.setAttribute(key, value);
  out.append(...children);
  return out;
}
const sum = (list) => list.reduce((a, b) => a + b, 0);
const count = (n) => n.toLocaleString("en-US");
// As the rest of Duet prints bytes: ties go to the even digit.
function bytes(n) {
  if (n < 1024) return `${n} B`;
  const units = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
  let value = n / 1024, unit = 0;
  for (; value >= 1024 && unit + 1 < units.length; ++unit) value /= 1024;
  const digits = value < 10 ? 2 : value < 100 || unit >= 2 ? 1 : 0;
  const scaled = value * 10 ** digits;
  let whole = Math.round(scaled);
  if (whole - scaled === 0.5 && whole % 2 === 1) --whole;
  return `${(whole / 10 ** digits).toFixed(digits)} ${units[unit]}`;
}
const exact = (n) => `${count(n)} bytes`;
const ms = (t) => `${t < 10 ? t.toFixed(2) : t < 100 ? t.toFixed(1) : count(Math.round(t))} ms`;
const percent = (share) => `${(100 * share).toFixed(1)} %`;
// Characters that break or reorder a line are shown by their number.
function shown(text) {
  return String(text).replace(/[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/gu,
    (c) => `\\u{${c.codePointAt(0).toString(16)}}`);
}
const owner = (row) => (row === 0 ? "outside any scope" : shown(rows[row].path));
const swatch = (kind) => el("span", {class: kind === "free" ? "swatch free" : `swatch k${kind}`});
const color = (name) =>
  getComputedStyle(document.documentElement).getPropertyValue(name).trim();
// Bytes for people, exact ones in the title and for scripts.
function amount(tag, n, attributes) {
  return el(tag, {title: exact(n), "data-bytes": n, ...attributes}, bytes(n));
}
// One bar of parts by kind; its full width is `whole`.
function bar(parts, whole) {
  const out = el("div", {class: "bar", "aria-hidden": "true"});
  for (const kind of stack) {
    if (parts[kind] > 0) {
      out.append(el("i", {class: `k${kind}`, style: `width:${(100 * parts[kind]) / whole}%`}));
    }
  }
  return out;
}

const tip = byId("tip");
// Beside the point (x, y) of the window, inside the window.
function showTip(x, y, lines) {
  tip.replaceChildren(...lines.map((line) => el("div", {}, line)));
  tip.hidden = false;
  const box = tip.getBoundingClientRect();
  const left = x + 14 + box.width > innerWidth ? x - 14 - box.width : x + 14;
  const top = y + 14 + box.height > innerHeight ? y - 14 - box.height : y + 14;
  tip.style.left = `${Math.max(8, Math.min(left, innerWidth - box.width - 8))}px`;
  tip.style.top = `${Math.max(8, top)}px`;
}
const hideTip = () => { tip.hidden = true; };
addEventListener("scroll", hideTip, {passive: true, capture: true});

// Runs `draw` now, whenever the element gets another width, and when light becomes dark.
function keepDrawn(element, draw) {
  let width = 0;
  new ResizeObserver(() => {
    if (element.clientWidth !== width) draw();
    width = element.clientWidth;
  }).observe(element);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
  draw();
}
// The canvas's context, cleared, in CSS pixels; its size follows the layout.
function paper(canvas) {
  const ratio = window.devicePixelRatio || 1;
  const width = canvas.clientWidth, height = canvas.clientHeight;
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  const context = canvas.getContext("2d");
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  return [context, width, height, ratio];
}

function head() {
  const c = (key) => shown(String(data.config[key]).replace(/^"(.*)"$/, "$1"));  // TOML's text
  const words = [c("family"), `${c("n_layer")} layers`, `${c("n_head")} heads`,
    `width ${c("n_embd")}`, `${c("block_size")} tokens`, `vocabulary ${c("vocab_size")}`,
    `coupling ${c("coupling")}`, `batch ${c("batch_size")} × ${c("gradient_accumulation_steps")}`,
    c("dtype"), `${data.planned ? "for" : "on"} ${data.device}`,
    c("recompute") === "none" ? "" : `recompute ${c("recompute")}`];
  byId("model").textContent = words.filter((w) => w !== "").join(", ");
  byId("how").textContent = data.planned
    ? "Planned: one step walked without numbers, so there are no times and no memory of the process."
    : `Measured: ${data.steps} step${data.steps === 1 ? "" : "s"} on random tokens; the timeline is ` +
      "of the last one.";
  const facts = byId("facts");
  const fact = (name, value, more, attributes) => {
    facts.append(el("div", {}, el("dt", {}, name), el("dd", {class: "main", ...attributes}, value),
      el("dd", {class: "more"}, more)));
  };
  const total = (id, n) => ({id, "data-bytes": n});
  fact("Live at the peak", bytes(data.peak_bytes), exact(data.peak_bytes),
    total("total-peak", data.peak_bytes));
  fact("Held from the system", bytes(data.peak_reserved_bytes),
    `at most; ${percent(data.peak_reserved_bytes / data.peak_bytes - 1)} above live`,
    total("total-reserved", data.peak_reserved_bytes));
  if (data.process) {
    fact("Process", bytes(data.process.peak_bytes),
      `resident at most; ${bytes(data.process.before_bytes)} before the model, ` +
      `${bytes(data.process.libraries_bytes)} of libraries`,
      total("total-process", data.process.peak_bytes));
  }
  if (!data.planned) {
    const whole = rows[0];
    fact("Step", ms(data.step_ms), `median; forward ${ms(whole.forward_ms)}, backward ` +
      `${ms(whole.backward_ms)}, update ${ms(whole.update_ms)}`, {id: "step"});
  }
  fact("Parameters", count(data.parameters), `${bytes(rows[0].parameters)} of values`, {});
  fact("Outside any scope", bytes(data.unattributed_bytes),
    `${percent(data.unattributed_bytes / data.peak_bytes)} of the peak`,
    total("total-unattributed", data.unattributed_bytes));
  if (data.grown?.length > 0) {
    const list = data.grown.map((g) => `${bytes(g.bytes)} of ${g.kind} in ` +
      (g.path === "" ? "no scope" : shown(g.path)));
    byId("grown").hidden = false;
    byId("grown").textContent = `Kept since the step before, perhaps a leak: ${list.join("; ")}.`;
  }
  for (const [key, value] of Object.entries(data.config)) {
    byId("config").append(el("tr", {}, el("th", {scope: "row"}, shown(key)), el("td", {}, shown(value))));
  }
}

// Layers that differ by their number alone are one line: "blocks.*.attn".
function owners() {
  const kFirst = 10, groups = new Map();
  for (const {path, kind, bytes: n} of data.owners) {
    const name = path === "" ? "outside any scope" : shown(path.replace(/(^|\.)\d+(?=\.|$)/g, "$1*"));
    const group = groups.get(name + kind) ?? {name, kind: kinds.indexOf(kind), bytes: 0, members: 0};
    group.bytes += n;
    ++group.members;
    groups.set(name + kind, group);
  }
  const list = [...groups.values()].sort((a, b) => b.bytes - a.bytes);
  const body = byId("owners").tBodies[0];
  const line = (name, members, kind, n) => {
    const parts = kinds.map((_, k) => (k === kind ? n : 0));
    body.append(el("tr", {}, el("th", {scope: "row"}, name),
      el("td", {}, count(members)),
      el("td", {class: "text"}, ...(kind < 0 ? [] : [swatch(kind), kinds[kind]])), amount("td", n),
      el("td", {}, percent(n / data.peak_bytes)),
      el("td", {class: "of-bar"}, bar(parts, list[0].bytes))));
  };
  for (const g of list.slice(0, kFirst)) line(g.name, g.members, g.kind, g.bytes);
  const rest = list.slice(kFirst);
  if (rest.length > 0) line("all others", sum(rest.map((g) => g.members)), -1, sum(rest.map((g) => g.bytes)));
  byId("owners").tFoot.rows[0].append(el("th", {scope: "row"}, "all"), el("td"), el("td"),
    amount("td", sum(list.map((g) => g.bytes)), {id: "total-owners"}), el("td"),
    el("td", {class: "of-bar"}));
}
head();
owners();
)js";

}  // namespace duet
