// The script of the profile's page: the blocks of every segment at the peak.
#pragma once

namespace duet {

// A block of the JSON is [bytes, free, kind, row, op].
inline constexpr const char* kMapScript = R"js(
function map() {
  const kBytes = 0, kFree = 1, kKind = 2, kRow = 3, kOp = 4, kFirst = 100;
  const kinds_and_free = [...stack, kinds.length];
  if (data.map.length === 0) {
    byId("map-words").textContent = "This profile has no record of segments.";
    for (const id of ["map-how", "scale", "map-keys", "map-box"]) byId(id).hidden = true;
    return;
  }
  const segments = data.map.map((segment) => {
    const starts = [];
    let at = 0, live = 0, free = 0, gap = 0;
    for (const block of segment.blocks) {
      starts.push(at);
      at += block[kBytes];
      if (block[kFree]) {
        free += block[kBytes];
        gap = Math.max(gap, block[kBytes]);
      } else {
        live += block[kBytes];
      }
    }
    return {bytes: segment.bytes, blocks: segment.blocks, starts, live, free, gap};
  });
  const all = sum(segments.map((s) => s.bytes)), free = sum(segments.map((s) => s.free));
  const live = sum(segments.map((s) => s.live));
  const empty = sum(segments.filter((s) => s.free === s.bytes).map((s) => s.bytes));
  const widest = segments.reduce((a, s) => Math.max(a, s.bytes), 1);
  const gap = segments.reduce((a, s) => Math.max(a, s.gap), 0);
  byId("map-words").replaceChildren(
    amount("strong", live, {id: "total-map-live"}), " live and ",
    amount("strong", free, {id: "total-map-free"}), " free in ",
    amount("strong", all, {id: "total-map"}),
    ` of ${count(segments.length)} segment${segments.length === 1 ? "" : "s"}: `,
    free === 0 ? "nothing is fragmented."
      : `${percent((free - empty) / all)} is free between live blocks, ${percent(empty / all)} in ` +
        `segments without a live block; the largest free block has ${bytes(gap)}.`);
  let sameScale = true;

  // Columns of one device pixel. A column inside one block is solid; one that several blocks share
  // is cut by height into their parts, so that what is too small to see still counts.
  function draw(segment, canvas) {
    const [g, width, height, ratio] = paper(canvas);
    if (width === 0) return;
    g.setTransform(1, 0, 0, 1, 0, 0);
    const full = canvas.width, tall = canvas.height;
    const w = Math.max(1, Math.round(full * (sameScale ? segment.bytes / widest : 1)));
    const mixes = new Float64Array(w * (kinds.length + 1)), parts = kinds.length + 1;
    const scale = w / segment.bytes;
    segment.blocks.forEach((block, i) => {
      const part = block[kFree] ? kinds.length : block[kKind];
      const begin = segment.starts[i] * scale, end = Math.min(w, begin + block[kBytes] * scale);
      for (let c = Math.floor(begin); c < end; ++c) {
        mixes[c * parts + part] += Math.min(end, c + 1) - Math.max(begin, c);
      }
    });
    const fills = kinds.map((_, k) => color(`--k${k}`)), faint = color("--faint");
    const hatch = document.createElement("canvas"), size = Math.round(6 * ratio);
    hatch.width = hatch.height = size;
    const h = hatch.getContext("2d");
    h.strokeStyle = faint;
    h.globalAlpha = 0.55;
    h.lineWidth = ratio;
    h.beginPath();
    for (const shift of [-size, 0, size]) {
      h.moveTo(shift - 1, size + 1);
      h.lineTo(shift + size + 1, -1);
    }
    h.stroke();
    fills.push(g.createPattern(hatch, "repeat"));
    const same = (a, b) => {
      for (let k = 0; k < parts; ++k) {
        if (Math.abs(mixes[a * parts + k] - mixes[b * parts + k]) > 1e-9) return false;
      }
      return true;
    };
    for (let from = 0, c = 1; c <= w; ++c) {
      if (c < w && same(from, c)) continue;
      let low = tall;
      for (const k of kinds_and_free) {
        const part = mixes[from * parts + k] * tall;
        if (part <= 0) continue;
        g.fillStyle = fills[k];
        g.fillRect(from, low - part, c - from, part);
        low -= part;
      }
      from = c;
    }
    g.fillStyle = color("--page");  // borders of blocks that are wide enough to have some
    segment.blocks.forEach((block, i) => {
      if (i > 0 && block[kBytes] * scale >= 4 * ratio) {
        g.fillRect(Math.round(segment.starts[i] * scale), 0, Math.max(1, Math.round(ratio / 2)), tall);
      }
    });
    g.strokeStyle = faint;
    g.globalAlpha = 0.5;
    g.lineWidth = 1;
    g.strokeRect(0.5, 0.5, w - 1, tall - 1);
  }

  const describe = (block) => block[kFree] ? "free"
    : `${owner(block[kRow])}${block[kOp] === null ? "" : `, by ${shown(block[kOp])}`}`;
  const words = (segment, i) => {
    const block = segment.blocks[i];
    return [describe(block), `${bytes(block[kBytes])} (${exact(block[kBytes])})` +
      (block[kFree] ? "" : `, ${kinds[block[kKind]]}`),
      `block ${count(i + 1)} of ${count(segment.blocks.length)}, at ${bytes(segment.starts[i])}`];
  };
  // What lies under one pixel: a block, or how many there are and of what.
  function under(segment, canvas, x) {
    const w = canvas.clientWidth * (sameScale ? segment.bytes / widest : 1);
    if (x > w) return null;
    const perPixel = segment.bytes / w, from = Math.floor(x) * perPixel, to = from + perPixel;
    const inside = [];
    segment.blocks.forEach((block, i) => {
      if (segment.starts[i] < to && segment.starts[i] + block[kBytes] > from) inside.push(i);
    });
    if (inside.length === 0) return null;
    if (inside.length <= 2) {
      const at = x * perPixel;
      return words(segment, inside.find((i) => segment.starts[i] + segment.blocks[i][kBytes] > at) ?? inside[0]);
    }
    const shares = new Array(kinds.length + 1).fill(0);
    let largest = inside[0];
    for (const i of inside) {
      const block = segment.blocks[i];
      shares[block[kFree] ? kinds.length : block[kKind]] += block[kBytes];
      if (block[kBytes] > segment.blocks[largest][kBytes]) largest = i;
    }
    const named = shares.map((n, k) => [n, kinds[k] ?? "free"]).filter(([n]) => n > 0);
    return [`${count(inside.length)} blocks in this pixel`,
      named.map(([n, name]) => `${name} ${bytes(n)}`).join(", "),
      `largest: ${bytes(segment.blocks[largest][kBytes])}, ${describe(segment.blocks[largest])}`];
  }

  const body = byId("map").tBodies[0], drawn = [];
  function add(segment, number) {
    const canvas = el("canvas", {role: "slider", tabindex: number === 0 ? 0 : -1,
      "aria-label": `blocks of segment ${number + 1}`, "aria-valuemin": 1,
      "aria-valuemax": segment.blocks.length, "aria-valuenow": 1,
      "aria-valuetext": words(segment, 0).join(": ")});
    let at = 0;
    canvas.addEventListener("pointermove", (e) => {
      const lines = under(segment, canvas, e.offsetX);
      if (lines) showTip(e.clientX, e.clientY, lines); else hideTip();
    });
    canvas.addEventListener("pointerleave", hideTip);
    canvas.addEventListener("blur", hideTip);
    canvas.addEventListener("keydown", (e) => {
      const other = {ArrowUp: number - 1, ArrowDown: number + 1}[e.key];
      const go = {ArrowLeft: at - 1, ArrowRight: at + 1, Home: 0, End: segment.blocks.length - 1}[e.key];
      if (other !== undefined) drawn[other]?.[1].focus();
      else if (go !== undefined) {
        at = Math.max(0, Math.min(go, segment.blocks.length - 1));
        const lines = words(segment, at), box = canvas.getBoundingClientRect();
        canvas.setAttribute("aria-valuenow", at + 1);
        canvas.setAttribute("aria-valuetext", lines.join(": "));
        const middle = segment.starts[at] + segment.blocks[at][kBytes] / 2;
        showTip(box.left + (middle / (sameScale ? widest : segment.bytes)) * box.width, box.bottom, lines);
      } else return;
      e.preventDefault();
    });
    body.append(el("tr", {}, el("th", {scope: "row"}, count(number + 1)), amount("td", segment.bytes),
      el("td", {class: segment.free === 0 ? "zero" : ""}, percent(segment.free / segment.bytes)),
      el("td", {}, count(segment.blocks.length)), el("td", {class: "picture"}, canvas)));
    drawn.push([segment, canvas]);
  }
  const redraw = () => drawn.forEach(([segment, canvas]) => draw(segment, canvas));
  segments.slice(0, kFirst).forEach(add);
  const more = byId("more-segments");
  more.hidden = segments.length <= kFirst;
  more.textContent = `Show the other ${count(segments.length - kFirst)} segments`;
  more.addEventListener("click", () => {
    segments.slice(kFirst).forEach((segment, i) => add(segment, kFirst + i));
    more.hidden = true;
    redraw();
    drawn[kFirst][1].focus();
  });
  const scale = byId("scale");
  scale.addEventListener("click", () => {
    sameScale = !sameScale;
    scale.setAttribute("aria-pressed", !sameScale);
    redraw();
  });
  const keys = byId("map-keys");
  for (const kind of [...stack].reverse()) keys.append(el("li", {}, swatch(kind), kinds[kind]));
  keys.append(el("li", {}, swatch("free"), "free"));
  keepDrawn(byId("map-box"), redraw);
}
map();
)js";

}  // namespace duet
