// The script of the profile's page: the tree of scopes, foldable and sortable.
#pragma once

namespace duet {

inline constexpr const char* kTreeScript = R"js(
function tree() {
  // Parents from the depths of the pre-order; a row's own bytes become a child beside the others.
  const nodes = rows.map((row, index) => ({row, index, name: "", children: [], depth: row.depth}));
  const open = [];
  for (const node of nodes) {
    open.length = node.depth;
    const parent = open.at(-1);
    node.parent = parent;
    parent?.children.push(node);
    node.name = !parent ? "whole step"
      : node.row.path.slice(parent.row.path === "" ? 0 : parent.row.path.length + 1);
    open.push(node);
  }
  for (const node of nodes) {
    const own = sum(node.row.own_at_peak);
    if (node.children.length > 0 && own > 0) {
      node.children.push({itself: true, children: [], parent: node, depth: node.depth + 1,
        name: node.parent ? "itself" : "outside any scope",
        row: {path: node.row.path, at_peak: node.row.own_at_peak, at_peak_bytes: own,
          share: own / data.peak_bytes}});
    }
  }
  byId("total-tree").replaceChildren(
    amount("span", sum(rows.map((row) => sum(row.own_at_peak))), {id: "own-bytes"}));

  const timed = data.planned ? [] : ["forward_ms", "backward_ms", "update_ms"];
  const columns = [["scope", "scope"], ["at_peak_bytes", "at the peak"], ["share", "share"], ["bar", ""],
    ...stack.map((k) => [kindKeys[k], kinds[k]]), ...timed.map((key) => [key, key.slice(0, -3)])];
  // null: the order of the model.
  let sorted = null, ascending = false;
  const compare = (a, b) => {
    if (sorted === null) return 0;
    const order = sorted === "scope" ? a.name.localeCompare(b.name, "en", {numeric: true})
      : (a.row[sorted] ?? -1) - (b.row[sorted] ?? -1);
    return ascending ? order : -order;
  };

  const table = byId("tree"), body = table.tBodies[0], headRow = table.tHead.rows[0];
  function showSorted() {
    for (const th of headRow.cells) {
      if (th.dataset.key !== sorted) th.removeAttribute("aria-sort");
      else th.setAttribute("aria-sort", ascending ? "ascending" : "descending");
    }
  }
  for (const [key, title] of columns) {
    const th = el("th", {scope: "col", "data-key": key});
    headRow.append(th);
    if (key === "bar") {
      th.setAttribute("aria-label", "by kind");
      continue;
    }
    const button = el("button", {type: "button"}, title);
    th.append(button);
    button.addEventListener("click", () => {  // one direction, the other, the order of the model
      const first = key === "scope";
      if (sorted !== key) [sorted, ascending] = [key, first];
      else if (ascending === first) ascending = !first;
      else sorted = null;
      showSorted();
      render();
    });
  }

  function line(node) {
    const {row} = node, leaf = node.children.length === 0;
    const fold = leaf ? el("span", {class: "leaf"})
      : el("button", {type: "button", class: "fold", "aria-expanded": Boolean(node.open),
          "aria-label": `${node.open ? "fold" : "unfold"} ${shown(node.name)}`, "data-row": node.index});
    const first = el("th", {scope: "row", title: shown(row.path), style: `padding-left:${6 + 16 * node.depth}px`,
      class: node.itself ? "itself" : ""}, fold, shown(node.name));
    const cells = columns.slice(1).map(([key]) => {
      if (key === "bar") return el("td", {class: "of-bar"}, bar(row.at_peak, data.peak_bytes));
      const value = row[key];
      if (value === undefined) return el("td", {class: "zero"}, "–");
      if (key === "share") return el("td", {}, percent(value));
      if (value === 0) return el("td", {class: "zero", "data-bytes": 0}, "0");
      return key.endsWith("_ms") ? el("td", {title: `${value} ms`}, ms(value)) : amount("td", value);
    });
    return el("tr", {"aria-level": node.depth + 1}, first, ...cells);
  }
  // Only lines that are unfolded exist.
  function render() {
    const lines = [], waiting = [nodes[0]];
    while (waiting.length > 0) {
      const node = waiting.pop();
      lines.push(line(node));
      if (node.open) waiting.push(...[...node.children].sort(compare).reverse());
    }
    body.replaceChildren(...lines);
  }
  function toggle(index, value) {
    nodes[index].open = value ?? !nodes[index].open;
    render();
    body.querySelector(`[data-row="${index}"]`)?.focus();
  }
  body.addEventListener("click", (e) => {
    const button = e.target.closest("tr")?.querySelector(".fold");
    if (button && getSelection().isCollapsed) toggle(Number(button.dataset.row));
  });
  body.addEventListener("keydown", (e) => {
    const button = e.target.closest(".fold");
    if (!button) return;
    const buttons = [...body.querySelectorAll(".fold")], at = buttons.indexOf(button);
    if (e.key === "ArrowRight") toggle(Number(button.dataset.row), true);
    else if (e.key === "ArrowLeft") toggle(Number(button.dataset.row), false);
    else if (e.key === "ArrowDown") buttons[at + 1]?.focus();
    else if (e.key === "ArrowUp") buttons[at - 1]?.focus();
    else return;
    e.preventDefault();
  });

  const depths = rows.reduce((a, row) => Math.max(a, row.depth), 0);
  const choice = byId("depth");
  const unfold = (depth) => {
    for (const node of nodes) node.open = node.depth < depth;
    render();
  };
  for (let d = 1; d <= depths; ++d) {
    choice.append(el("option", {value: d}, d === depths ? `${d} (all)` : d));
  }
  choice.addEventListener("change", () => unfold(Number(choice.value)));
  // As deep as fits on a screen.
  let first = 1;
  while (first < depths && rows.filter((row) => row.depth <= first + 1).length <= 30) ++first;
  choice.value = first;
  unfold(first);
}
tree();
)js";

}  // namespace duet
