// The script of the profile's page: the timeline of live bytes.
#pragma once

namespace duet {

// A point of the JSON is [ms, live of each kind..., reserved, bytes, row, op].
inline constexpr const char* kTimelineScript = R"js(
function timeline() {
  const points = data.points, canvas = byId("timeline"), plot = canvas.parentElement;
  const kReserved = 1 + kinds.length, kBytes = kReserved + 1, kRow = kBytes + 1, kOp = kRow + 1;
  const margin = {left: 62, right: 12, top: 26, bottom: 40};
  const live = points.map((p) => sum(p.slice(1, kReserved)));
  if (points.length === 0) return;
  const highest = points.reduce((a, p) => Math.max(a, p[kReserved]), 1);
  byId("total-timeline").replaceChildren(amount("span", live.reduce((a, b) => Math.max(a, b), 0),
    {id: "highest"}));

  // Time or number of the event: both are places on the horizontal axis.
  let byEvent = data.planned;
  const place = (i) => (byEvent ? i : points[i][0]);
  // The last point whose time is at most t; -1 before the first.
  const last = (t) => {
    let low = 0, high = points.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (points[middle][0] <= t) low = middle + 1; else high = middle;
    }
    return low - 1;
  };
  const placeOfTime = (t) => (byEvent ? Math.min(points.length, last(t) + 1) : t);
  const phases = [];  // [begin, end, name], in time
  for (const [begin, end, , name] of data.spans) {
    const top = phases.at(-1);
    if (top && top[2] === name) top[1] = end; else phases.push([begin, end, name]);
  }
  const whole = () => byEvent ? [0, points.length]
    : [Math.min(0, points[0][0]), Math.max(points.at(-1)[0], phases.at(-1)?.[1] ?? 0)];
  let view = whole(), cursor = null;
  const inner = () => Math.max(1, canvas.clientWidth - margin.left - margin.right);
  const pixel = (at) => margin.left + ((at - view[0]) / (view[1] - view[0] || 1)) * inner();
  const unpixel = (x) => view[0] + ((x - margin.left) / inner()) * (view[1] - view[0]);
  function eventAt(x) {
    const at = Math.max(view[0], Math.min(unpixel(x), view[1]));
    return Math.max(0, Math.min(byEvent ? Math.floor(at) : last(at), points.length - 1));
  }

  // For each column of pixels the event whose state is highest in it, and the most reserved.
  function columns(width) {
    const best = new Int32Array(width).fill(-1), reserved = new Float64Array(width);
    for (let i = 0; i < points.length; ++i) {
      const begin = place(i), end = i + 1 < points.length ? place(i + 1) : Math.max(begin, whole()[1]);
      if (end < view[0] || begin > view[1]) continue;
      const from = Math.max(0, Math.floor(pixel(begin) - margin.left));
      const to = Math.min(width - 1, Math.max(from, Math.ceil(pixel(end) - margin.left) - 1));
      for (let c = from; c <= to; ++c) {
        if (best[c] < 0 || live[i] > live[best[c]]) best[c] = i;
        reserved[c] = Math.max(reserved[c], points[i][kReserved]);
      }
    }
    return [best, reserved];
  }

  function draw() {
    const [g, width, height] = paper(canvas);
    const bottom = height - margin.bottom, w = Math.floor(inner());
    const top = highest * 1.08;
    const y = (n) => bottom - (n / top) * (bottom - margin.top);
    const text = color("--text"), faint = color("--faint"), rule = color("--rule");
    g.font = "12px system-ui, 'Segoe UI', Roboto, 'DejaVu Sans', sans-serif";
    let step = 1;
    while (top / step > (height < 300 ? 4 : 6)) step *= 2;
    g.textAlign = "right";
    g.textBaseline = "middle";
    for (let n = 0; n <= top; n += step) {
      g.fillStyle = rule;
      g.fillRect(margin.left, Math.round(y(n)), w, 1);
      g.fillStyle = faint;
      g.fillText(n === 0 ? "0" : bytes(n).replace(/\.0+(?= )/, ""), margin.left - 8, y(n));
    }
    const [best, reserved] = columns(w);
    let lower = stack.length;
    while (lower-- > 0) {  // from the top of the stack down, each over the one before
      g.fillStyle = color(`--k${stack[lower]}`);
      g.beginPath();
      for (let c = 0; c < w; ++c) {
        if (best[c] < 0) continue;
        let n = 0;
        for (let k = 0; k <= lower; ++k) n += points[best[c]][1 + stack[k]];
        g.rect(margin.left + c, y(n), 1.02, bottom - y(n));
      }
      g.fill();
    }
    g.strokeStyle = faint;
    g.setLineDash([5, 3]);
    g.beginPath();
    for (let c = 0; c < w; ++c) {
      const at = y(reserved[c]);
      if (c === 0 || best[c - 1] < 0) g.moveTo(margin.left + c, at); else g.lineTo(margin.left + c, at);
      g.lineTo(margin.left + c + 1, at);
    }
    g.stroke();
    g.setLineDash([]);

    // Phases above the plot, their borders through it.
    g.textBaseline = "middle";
    g.textAlign = "center";
    const shade = {forward: 0.07, backward: 0.16, update: 0.26};
    for (const [begin, end, name] of phases) {
      const from = Math.max(margin.left, pixel(placeOfTime(begin)));
      const to = Math.min(margin.left + w, pixel(placeOfTime(end)));
      if (to <= from) continue;
      g.globalAlpha = shade[name] ?? 0.07;
      g.fillStyle = text;
      g.fillRect(from, 4, to - from, 16);
      g.globalAlpha = (shade[name] ?? 0.07) / 4;
      g.fillRect(from, margin.top, to - from, bottom - margin.top);
      g.globalAlpha = 1;
      if (g.measureText(name).width + 8 < to - from) g.fillText(name, (from + to) / 2, 12.5);
      if (to - from > 3) {
        g.fillStyle = faint;
        g.fillRect(Math.round(from), 4, 1, bottom - 4);
      }
    }
    const peak = pixel(place(data.peak_point) + (byEvent ? 0.5 : 0));
    if (peak >= margin.left && peak <= margin.left + w) {
      const high = y(live[data.peak_point]), label = `peak ${bytes(live[data.peak_point])}`;
      g.fillStyle = text;
      g.beginPath();
      g.moveTo(peak, high);
      g.lineTo(peak - 5, high - 8);
      g.lineTo(peak + 5, high - 8);
      g.fill();
      const half = g.measureText(label).width / 2 + 2;
      const at = Math.max(margin.left + half, Math.min(peak, margin.left + w - half));
      const held = y(points[data.peak_point][kReserved]);  // its line does not go through the label
      const middle = Math.abs(held - high + 17) < 11 ? held - 11 : high - 17;
      g.fillStyle = color("--page");
      g.fillRect(at - half - 2, middle - 8, 2 * half + 4, 16);
      g.fillStyle = text;
      g.fillText(label, at, middle);
    }
    axis(g, width, bottom, text, faint);
    mark();
  }

  function axis(g, width, bottom, text, faint) {
    const range = view[1] - view[0] || 1;
    let step = 10 ** Math.floor(Math.log10(range / (width < 600 ? 4 : 9)));
    while (range / step > (width < 600 ? 4 : 9)) step *= String(step).includes("2") ? 2.5 : 2;
    if (byEvent) step = Math.max(1, Math.round(step));
    const digits = Math.max(0, Math.ceil(-Math.log10(step) - 1e-9));
    g.textAlign = "center";
    for (let k = Math.ceil(view[0] / step); k * step <= view[1]; ++k) {
      const x = pixel(k * step);
      g.fillStyle = faint;
      g.fillRect(Math.round(x), bottom, 1, 4);
      if (x > width - 20) continue;
      g.fillText(digits === 0 ? count(Math.round(k * step)) : (k * step).toFixed(digits), x, bottom + 13);
    }
    g.fillStyle = text;
    g.fillText(byEvent ? "number of the event" : "time of the step, ms", margin.left + inner() / 2,
      bottom + 30);
  }

  // What an event was, in words; and the legend's second column.
  function words(i) {
    const p = points[i], n = p[kBytes], op = p[kOp] === null ? "" : ` by ${shown(p[kOp])}`;
    const what = n === 0 ? `a block became ${owner(p[kRow])}'s`
      : `${bytes(Math.abs(n))} ${n > 0 ? "allocated" : "freed"}${op}, of ${owner(p[kRow])}`;
    const span = data.spans.find(([begin, end]) => begin <= p[0] && p[0] < end);
    const work = span && span[2] !== 0 && span[2] !== p[kRow] ? `, while ${owner(span[2])} is at work` : "";
    return [`${bytes(live[i])} live ${data.planned ? "" : `at ${p[0].toFixed(3)} ms `}` +
      `(event ${count(i + 1)} of ${count(points.length)}${span ? `, ${span[3]}` : ""})`, what + work];
  }
  const legend = new Map();
  function legendRow(key, name, mark_, atPeak) {
    const now = el("td", {}, "");
    legend.set(key, now);
    byId("legend").tBodies[0].append(el("tr", {}, el("th", {scope: "row"}, mark_, name),
      amount("td", atPeak, {id: `peak-${key}`}), now));
  }
  for (const kind of [...stack].reverse()) {
    legendRow(kind, kinds[kind], swatch(kind), points[data.peak_point][1 + kind]);
  }
  legendRow("live", "live, all kinds", "", live[data.peak_point]);
  legendRow("reserved", "held from the system", el("span", {class: "swatch line"}),
    points[data.peak_point][kReserved]);

  const line = plot.querySelector(".mark"), band = plot.querySelector(".range");
  function mark() {
    const x = cursor === null ? -1 : pixel(place(cursor));
    line.hidden = !(x >= margin.left && x <= canvas.clientWidth - margin.right);
    line.style.left = `${x}px`;
  }
  function select(i) {
    cursor = i;
    mark();
    const lines = words(i), p = points[i];
    byId("event").replaceChildren(...lines.map((l, k) => el(k === 0 ? "strong" : "span", {}, `${l}. `)));
    canvas.setAttribute("aria-valuenow", i + 1);
    canvas.setAttribute("aria-valuetext", lines.join(": "));
    kinds.forEach((_, k) => { legend.get(k).textContent = bytes(p[1 + k]); });
    legend.get("live").textContent = bytes(live[i]);
    legend.get("reserved").textContent = bytes(p[kReserved]);
    return lines;
  }
  function look(from, to) {
    const [low, high] = whole();
    const least = byEvent ? 4 : (high - low) / 1e5;
    const middle = (from + to) / 2, half = Math.max(to - from, least) / 2;
    view = [Math.max(low, middle - half), Math.min(high, middle + half)];
    draw();
  }
  const zoom = (factor) => {
    const at = cursor === null ? (view[0] + view[1]) / 2 : place(cursor);
    look(at - (at - view[0]) * factor, at + (view[1] - at) * factor);
  };

  let dragged = null;
  canvas.addEventListener("pointerdown", (e) => {
    dragged = e.offsetX;
    canvas.setPointerCapture(e.pointerId);
  });
  canvas.addEventListener("pointermove", (e) => {
    showTip(e.clientX, e.clientY, select(eventAt(e.offsetX)));
    if (dragged === null || Math.abs(e.offsetX - dragged) < 5) return;
    band.hidden = false;
    band.style.left = `${Math.min(dragged, e.offsetX)}px`;
    band.style.width = `${Math.abs(e.offsetX - dragged)}px`;
  });
  canvas.addEventListener("pointerup", (e) => {
    if (dragged !== null && Math.abs(e.offsetX - dragged) >= 5) {
      look(unpixel(Math.min(dragged, e.offsetX)), unpixel(Math.max(dragged, e.offsetX)));
    }
    dragged = null;
    band.hidden = true;
  });
  canvas.addEventListener("pointercancel", () => { dragged = null; band.hidden = true; });
  canvas.addEventListener("pointerleave", hideTip);
  canvas.addEventListener("dblclick", () => look(...whole()));
  canvas.addEventListener("blur", hideTip);
  canvas.addEventListener("keydown", (e) => {
    const far = e.shiftKey ? 20 : 1, now = cursor ?? data.peak_point;
    const go = {ArrowLeft: now - far, ArrowRight: now + far, Home: 0, End: points.length - 1,
      p: data.peak_point}[e.key];
    if (go !== undefined) {
      const i = Math.max(0, Math.min(go, points.length - 1)), half = (view[1] - view[0]) / 2;
      select(i);
      if (place(i) < view[0] || place(i) > view[1]) look(place(i) - half, place(i) + half);
    } else if (e.key === "+" || e.key === "=") zoom(0.5);
    else if (e.key === "-") zoom(2);
    else if (e.key === "Escape") look(...whole());
    else return;
    e.preventDefault();
  });

  const controls = byId("views");
  const button = (name, act) => {
    const out = el("button", {type: "button"}, name);
    out.addEventListener("click", act);
    controls.append(out);
    return out;
  };
  button("Whole step", () => look(...whole()));
  for (const name of new Set(phases.map((p) => p[2]))) {
    const [begin, end] = phases.find((p) => p[2] === name);
    button(`${name[0].toUpperCase()}${name.slice(1)}`, () => look(placeOfTime(begin), placeOfTime(end)));
  }
  button("Around the peak", () => {
    const at = place(data.peak_point), half = (whole()[1] - whole()[0]) / 40;
    select(data.peak_point);
    look(at - half, at + half);
  });
  if (!data.planned) {
    const other = button("By event", () => {
      byEvent = !byEvent;
      other.setAttribute("aria-pressed", byEvent);
      look(...whole());
    });
    other.setAttribute("aria-pressed", byEvent);
    other.title = "Every event as wide as any other, whatever its time";
  }
  canvas.setAttribute("aria-valuemax", points.length);
  select(data.peak_point);
  cursor = null;  // the peak has its own mark
  keepDrawn(plot, draw);
}
timeline();
)js";

}  // namespace duet
