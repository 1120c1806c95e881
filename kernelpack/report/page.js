// Shows the data of a report: the table of variants, the stages of a kernel line by line, its loops, the sizes of a library.
"use strict";

const data = JSON.parse(document.getElementById("data").textContent);
const by = (id) => document.getElementById(id);
const CODE_COLUMNS = ["op", "variant", "dtype", "target", "config"];
const FIGURES = {
  registers: "registers", spills: "spills", shared: "shared memory", stack: "stack", scratch: "scratch", num_warps: "warps",
  waits_at_once: "waits at once",
};

function element(name, text, attributes = {}) {
  const made = document.createElement(name);
  if (text !== undefined && text !== "") made.textContent = text;
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  return made;
}

function bytes(count) {
  for (const unit of ["B", "kB", "MB"]) {
    if (count < 1000) return `${unit === "B" || count >= 100 ? Math.round(count) : count.toFixed(1)} ${unit}`;
    count /= 1000;
  }
  return `${count.toFixed(1)} GB`;
}

const plural = (count, noun) => `${count} ${noun}${count === 1 ? "" : "s"}`;

async function unpack(text) {
  const packed = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
  return JSON.parse(await new Response(stream).text());
}

// ---- the table of variants ----

const USUAL = ["registers", "spills", "shared", "num_warps"]; // the others are left out where all are 0
const figures = Object.keys(FIGURES).filter((name) => data.variants.some((one) => (USUAL.includes(name) ? name in one.figures : one.figures[name])));
const columns = [...CODE_COLUMNS, ...figures.map((name) => FIGURES[name]), "size"];
const sorting = { column: 0, down: false };

function cells(variant) {
  const values = figures.map((name) => variant.figures[name] ?? "");
  return [variant.op, variant.name, variant.dtype, variant.target, variant.config, ...values, variant.bytes];
}

const rows = data.variants.map((variant) => {
  const all = cells(variant);
  return { variant, cells: all, text: all.slice(0, CODE_COLUMNS.length).join(" ").toLowerCase() };
});

function nodeOf(row) {
  if (row.node) return row.node;
  row.node = element("tr");
  row.cells.forEach((value, number) => {
    const name = columns[number];
    const isNumber = number >= CODE_COLUMNS.length;
    const kind = isNumber ? "number" : name === "variant" || name === "config" ? "mono whole" : "";
    const cell = element("td", undefined, { class: kind, "data-label": name });
    const text = name === "size" ? bytes(value) : String(value);
    if (name === "variant" && row.variant.detail !== null) cell.append(element("a", text, { href: `#kernel-${row.variant.detail}` }));
    else if (text !== "") cell.append(text);
    row.node.append(cell);
  });
  return row.node;
}

const FEW = 200; // rows at once: a table of thousands is slow on a phone
const collator = new Intl.Collator("en", { numeric: true });
let most = FEW;

function showTable() {
  const words = by("search").value.toLowerCase().split(/\s+/).filter(Boolean);
  const found = rows.filter((row) => words.every((word) => row.text.includes(word)));
  const at = sorting.column;
  const compare = (a, b) => (typeof a === "number" && typeof b === "number" ? a - b : collator.compare(a, b));
  found.sort((a, b) => (sorting.down ? -1 : 1) * compare(a.cells[at], b.cells[at]));
  by("table").tBodies[0].replaceChildren(...found.slice(0, most).map(nodeOf));
  by("more").hidden = found.length <= most;
  by("more").textContent = `Show all ${found.length}`;
  const staged = data.details.length;
  const few = staged < rows.length ? `; ${staged} of them have their stages here, by --limit, --op and --variant of kernelpack report` : "";
  by("found").textContent = `${found.length} of ${plural(rows.length, "kernel")}${few}`;
  [...by("table").tHead.rows[0].cells].forEach((cell, number) => {
    if (number === at) cell.setAttribute("aria-sort", sorting.down ? "descending" : "ascending");
    else cell.removeAttribute("aria-sort");
  });
}

function sortBy(column) {
  sorting.down = sorting.column === column ? !sorting.down : column >= CODE_COLUMNS.length;
  sorting.column = column;
  by("order").value = String(column);
  showTable();
}

function startTable() {
  const head = element("tr");
  columns.forEach((name, number) => {
    const cell = element("th", undefined, { scope: "col", class: number >= CODE_COLUMNS.length ? "number" : "" });
    const button = element("button", name, { type: "button" });
    button.addEventListener("click", () => sortBy(number));
    cell.append(button);
    head.append(cell);
    by("order").append(element("option", name, { value: number }));
  });
  by("table").tHead.append(head);
  by("search").addEventListener("input", showTable);
  by("more").addEventListener("click", () => { most = Infinity; showTable(); });
  by("order").addEventListener("change", () => sortBy(Number(by("order").value)));
  showTable();
}

// ---- a kernel's stages ----

let sources = null;
let detail = null; // the kernel that is shown
let stage = null; // its stage that is shown
let file = 0; // the number, in the kernel, of the file that is shown
let kept = false; // whether a line was clicked, so that pointing changes nothing
let current = null; // {side, index}: the line that is pointed at
const sides = {
  source: { pane: by("left"), rows: [], render: renderSource },
  stage: { pane: by("right"), rows: [], render: renderStage },
};

const codeOf = (side) => sides[side].pane.querySelector(".code");
const key = (where, line) => `${where}:${line}`;

function chain(number) {
  const found = [];
  for (let at = number; at; at = detail.places[at - 1][2]) found.push(detail.places[at - 1]);
  return found;
}

// For each line of source, the lines of a stage that come from it: those of its own, and those of what it calls.
function linesOf(one) {
  if (one.index) return one.index;
  one.index = new Map();
  one.places.forEach((number, line) => {
    chain(number).forEach(([where, sourceLine], depth) => {
      const name = key(where, sourceLine);
      if (!one.index.has(name)) one.index.set(name, { own: [], calls: [] });
      one.index.get(name)[depth === 0 ? "own" : "calls"].push(line);
    });
  });
  return one.index;
}

function renderCode(side, lines, decorate) {
  const body = element("div");
  sides[side].rows = lines.map((text, index) => {
    const row = element("div", undefined, { class: "row" });
    row.append(element("i", String(index + 1)));
    decorate(row, index);
    row.append(element("span", text));
    row.dataset.index = index;
    return row;
  });
  body.append(...sides[side].rows);
  codeOf(side).replaceChildren(body);
  codeOf(side).scrollTop = 0;
}

function note(side, text) {
  const box = element("div", text, { class: "note" });
  codeOf(side).prepend(box);
}

function renderSource() {
  const source = detail.files.length ? sources[detail.files[file]] : { text: "" };
  const counts = linesOf(stage);
  const most = Math.max(1, ...[...counts.values()].map((found) => found.own.length));
  const known = new Set(detail.places.map(([where, line]) => key(where, line)));
  renderCode("source", source.text ? source.text.replace(/\n$/, "").split("\n") : [], (row, index) => {
    const name = key(file, index + 1);
    const count = counts.get(name)?.own.length ?? 0;
    const mark = element("b", count ? String(count) : "");
    mark.style.setProperty("--share", count / most);
    row.append(mark);
    row.classList.add(known.has(name) ? "known" : "unknown");
  });
  if (!source.text) note("source", "The source is not here. Name the op files beside the folder: kernelpack report FOLDER SOURCE...");
}

function renderStage() {
  renderCode("stage", stage.lines, (row, index) => row.classList.add(stage.places[index] ? "known" : "unknown"));
  if (stage.note) note("stage", stage.note);
}

function tabs(side, names, selected, choose) {
  const list = sides[side].pane.querySelector(".tabs");
  const buttons = names.map((name, number) => {
    const chosen = number === selected;
    const button = element("button", name, { type: "button", role: "tab", "aria-selected": chosen, tabindex: chosen ? 0 : -1 });
    button.addEventListener("click", () => choose(number));
    return button;
  });
  list.replaceChildren(...buttons);
  list.onkeydown = (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    event.preventDefault();
    choose((selected + step + names.length) % names.length);
    list.querySelector("[aria-selected=true]").focus();
  };
  const button = buttons[selected];
  if (button) list.scrollLeft = button.offsetLeft - list.offsetLeft - 40;
}

function showFile(number) {
  file = number;
  tabs("source", detail.files.map((one) => sources[one].name), file, (other) => { showFile(other); mark(); });
  renderSource();
}

function showStage(number) {
  const place = current && placeOf(current);
  stage = detail.stages[number];
  tabs("stage", detail.stages.map((one) => one.name), number, showStage);
  renderStage();
  showFile(file);
  if (place) {
    if (place[0] !== file) showFile(place[0]);
    current = { side: "source", index: place[1] - 1 };
  }
  mark(true);
}

// The file and line of source that a line of either side stands for.
function placeOf({ side, index }) {
  if (side === "source") return [file, index + 1];
  const number = stage.places[index];
  return number ? detail.places[number - 1].slice(0, 2) : null;
}

function reveal(side, row) {
  const box = codeOf(side);
  const top = row.offsetTop;
  if (top < box.scrollTop + 20 || top > box.scrollTop + box.clientHeight - 60) box.scrollTop = top - box.clientHeight / 3;
}

function mark(scrolls = false) {
  for (const { rows: all } of Object.values(sides)) for (const row of all) row.classList.remove("strong", "weak", "here");
  const place = current && placeOf(current);
  by("said").textContent = "";
  if (!current || !place) return;
  const calls = current.side === "stage" ? chain(stage.places[current.index]) : [place];
  if (current.side === "stage" && place[0] !== file) showFile(place[0]);
  const from = sides.source.rows[place[1] - 1];
  calls.slice(1).forEach(([where, line]) => where === file && sides.source.rows[line - 1]?.classList.add("weak"));
  from?.classList.add("strong");
  const found = linesOf(stage).get(key(...place)) ?? { own: [], calls: [] };
  found.calls.forEach((line) => sides.stage.rows[line].classList.add("weak"));
  found.own.forEach((line) => sides.stage.rows[line].classList.add("strong"));
  sides[current.side].rows[current.index]?.classList.add("here");
  if (scrolls) {
    const first = found.own[0] ?? found.calls[0];
    if (current.side === "source" && first !== undefined) reveal("stage", sides.stage.rows[first]);
    if (current.side === "stage" && from) reveal("source", from);
  }
  const name = detail.files.length ? sources[detail.files[place[0]]].name : "?";
  const called = found.calls.length ? `, ${plural(found.calls.length, "line")} of what it calls` : "";
  const path = calls.slice(1).map(([where, line]) => `${sources[detail.files[where]].name}:${line}`);
  by("said").textContent = `${name}:${place[1]}: ${plural(found.own.length, "line")} of ${stage.name}${called}` +
    (path.length ? `; called from ${path.join(", ")}` : "") + (kept ? "; kept, Esc lets go" : "");
}

function point(side, index, keeps) {
  if (kept && !keeps) return;
  const same = kept && current && current.side === side && current.index === index;
  kept = keeps && !same;
  current = { side, index };
  mark(true);
}

function startPanes() {
  for (const side of Object.keys(sides)) {
    const box = codeOf(side);
    const indexOf = (event) => event.target.closest(".row")?.dataset.index;
    box.addEventListener("pointerover", (event) => {
      const index = indexOf(event);
      if (index !== undefined && event.pointerType === "mouse") point(side, Number(index), false);
    });
    box.addEventListener("click", (event) => {
      const index = indexOf(event);
      if (index !== undefined) point(side, Number(index), true);
    });
    box.addEventListener("keydown", (event) => {
      const step = { ArrowDown: 1, ArrowUp: -1, PageDown: 20, PageUp: -20 }[event.key];
      const last = sides[side].rows.length - 1;
      const at = current && current.side === side ? current.index : -1;
      if (step && last >= 0) {
        event.preventDefault();
        current = { side, index: Math.max(0, Math.min(last, at + step)) };
        mark(true);
        reveal(side, sides[side].rows[current.index]);
      } else if (event.key === "Enter" && at >= 0) point(side, at, true);
    });
  }
  document.addEventListener("keydown", (event) => {
    if (event.key !== "Escape" || !current) return;
    kept = false;
    current = null;
    mark();
  });
  const staged = data.variants.filter((one) => one.detail !== null).sort((a, b) => a.detail - b.detail);
  by("which").append(...staged.map((one) => element("option", `${one.name} for ${one.target}`, { value: one.detail })));
  by("which").addEventListener("change", () => { location.hash = `kernel-${by("which").value}`; });
}

async function showKernel(number) {
  by("which").value = String(number);
  const variant = data.variants.find((one) => one.detail === number);
  sources ??= await unpack(data.sources);
  const packed = data.details[number];
  if (typeof packed === "string") data.details[number] = await unpack(packed);
  if (detail === data.details[number]) return;
  detail = data.details[number];
  current = null;
  kept = false;
  const figuresOf = figures.filter((name) => name in variant.figures).map((name) => [FIGURES[name], variant.figures[name]]);
  const facts = [["op", variant.op], ["target", variant.target], ...figuresOf, ["code", bytes(variant.bytes)], ["config", variant.config],
    ["note", variant.caveat]];
  by("facts").replaceChildren(...facts.filter(([, value]) => value !== "").map(([name, value]) => {
    const pair = element("div");
    pair.append(element("dt", name), element("dd", String(value)));
    return pair;
  }));
  const properties = new Map();
  for (const fact of variant.facts) {
    const [argument, ...property] = fact.split(":");
    properties.set(property.join(":"), [...(properties.get(property.join(":")) ?? []), argument]);
  }
  const [summary, list] = by("assumed").children;
  by("assumed").hidden = !properties.size;
  summary.textContent = `assumes ${[...properties].map(([property, names]) => `${property} of ${plural(names.length, "argument")}`).join(", ")}`;
  list.textContent = [...properties].map(([property, names]) => `${property}: ${names.join(", ")}`).join("; ");
  file = 0;
  const names = detail.stages.map((one) => one.name);
  showStage(Math.max(0, names.findIndex((name) => ["ptx", "asm", "sass"].includes(name))));
  const first = detail.places.find(([where]) => where === file);
  if (first && sides.source.rows[first[1] - 1]) reveal("source", sides.source.rows[first[1] - 1]);
  const code = sides.stage.rows.find((row) => row.classList.contains("known"));
  if (code) reveal("stage", code);
  showLoops(detail, names);
}

// ---- loops as a timeline ----

const ITERATIONS = 3;
const LABELS = { copy: "copy", load: "load", wait: "wait", product: "dot", compute: "", shared: "move", store: "store", arrive: "arrive" };
const NAMES = { copy: "copies", load: "loads", wait: "waits", product: "products", compute: "compute", shared: "moves", store: "stores", arrive: "arrivals" };
const LANE = 22, LEFT = 84, HEAD = 26;

const nth = (number) => `iteration i${number > 0 ? "+" : ""}${number || ""}`;

// The bars of a loop: from where a step of an iteration starts to where it ends, cut to the iterations that are shown.
function bars(loop) {
  const steps = loop.steps.length, all = steps * ITERATIONS, found = [];
  const before = Math.max(0, ...loop.steps.map((step) => step.later));
  for (let iteration = -before; iteration < ITERATIONS; iteration++) {
    loop.steps.forEach((step, number) => {
      const begin = iteration * steps + number, end = (iteration + step.later) * steps + Math.max(step.until, step.later ? 0 : number) + 1;
      if (end > 0 && begin < all) found.push({ step, iteration, begin: Math.max(0, begin), end: Math.min(all, end), cutLeft: begin < 0, cutRight: end > all });
    });
  }
  return found;
}

function showLoop(loop) {
  const box = element("div", undefined, { class: "loop", tabindex: 0, role: "group" });
  const lanes = element("div", undefined, { class: "lanes" });
  const steps = loop.steps.length, found = bars(loop);
  const unit = Math.max(38, Math.min(64, (by("loops").clientWidth - LEFT - 16) / (steps * ITERATIONS)));
  let top = HEAD;
  for (const kind of Object.keys(NAMES)) {
    const own = found.filter((bar) => bar.step.kind === kind);
    if (!own.length) continue;
    const ends = []; // of the last bar in each row of the lane
    for (const bar of own) {
      let line = ends.findIndex((end) => end <= bar.begin);
      if (line < 0) line = ends.length;
      ends[line] = bar.end;
      const { step, iteration } = bar;
      const short = LABELS[kind] || String(step.count);
      const ahead = step.later && kind === "copy" ? ` for ${nth(iteration + step.later)}` : "";
      const button = element("button", short, { type: "button", title: `${step.name}${ahead}`, class: `${bar.cutLeft ? "open-left " : ""}${bar.cutRight ? "open-right" : ""}` });
      button.style.cssText = `left:${LEFT + bar.begin * unit + 1}px;width:${(bar.end - bar.begin) * unit - 2}px;top:${top + line * LANE + 2}px;background:var(--${kind})`;
      if (step.chain) button.addEventListener("click", () => pointAtPlace(step.chain));
      lanes.append(button);
    }
    const label = element("div", NAMES[kind], { class: "lane" });
    label.style.top = `${top}px`;
    lanes.append(label);
    top += ends.length * LANE;
  }
  for (let iteration = 0; iteration < ITERATIONS; iteration++) {
    const line = element("div", nth(iteration), { class: "iteration" });
    line.style.left = `${LEFT + iteration * steps * unit}px`;
    lanes.prepend(line);
  }
  lanes.style.cssText = `height:${top + 4}px;width:${LEFT + steps * ITERATIONS * unit}px`;
  box.append(lanes);
  return box;
}

function pointAtPlace(number) {
  const [where, line] = detail.places[number - 1];
  if (where !== file) showFile(where);
  current = { side: "source", index: line - 1 };
  kept = true;
  mark(true);
  if (sides.source.rows[line - 1]) reveal("source", sides.source.rows[line - 1]);
  by("said").scrollIntoView({ block: "start" });
}

function showLoops(one) {
  const shown = one.loops.flatMap((loop) => {
    const path = chain(loop.place).map(([where, line]) => `${sources[one.files[where]].name}:${line}`);
    const title = `Loop at ${path[0] ?? "?"}${path.length > 1 ? `, called from ${path.slice(1).join(", ")}` : ""}${loop.role ? `; run by ${loop.role}` : ""}`;
    return [element("h3", title), showLoop(loop)];
  });
  by("loops").replaceChildren(...shown);
  for (const node of [by("loops-title"), document.querySelector(".loops-hint")]) node.hidden = !shown.length;
}

// ---- sizes ----

const COLOURS = ["#2563a8", "#8a4b12", "#2e7d4f", "#7a3fa0", "#a03048", "#0f6f78", "#5f6b1f"];

const GREY = "#59636e";
const colourOf = (target, targets) => (target ? COLOURS[targets.indexOf(target) % COLOURS.length] : GREY);

// Squarified treemap (Bruls, Huizing, van Wijk 2000): rectangles of these weights in a rectangle, as square as they can be.
function squares(weights, box) {
  const total = weights.reduce((sum, one) => sum + one, 0);
  const areas = weights.map((one) => (one / total) * box.w * box.h);
  const found = [];
  let rest = { ...box }, from = 0;
  while (from < areas.length) {
    const short = Math.min(rest.w, rest.h);
    let to = from, sum = 0, worst = Infinity;
    while (to < areas.length) {
      const more = sum + areas[to];
      const next = Math.max((short * short * areas[from]) / (more * more), (more * more) / (short * short * areas[to]));
      if (next > worst) break;
      [worst, sum, to] = [next, more, to + 1];
    }
    const thick = sum / short;
    let along = 0;
    for (; from < to; from++) {
      const long = areas[from] / thick;
      found.push(rest.w >= rest.h ? { x: rest.x, y: rest.y + along, w: thick, h: long } : { x: rest.x + along, y: rest.y, w: long, h: thick });
      along += long;
    }
    rest = rest.w >= rest.h ? { x: rest.x + thick, y: rest.y, w: rest.w - thick, h: rest.h } : { x: rest.x, y: rest.y + thick, w: rest.w, h: rest.h - thick };
  }
  return found;
}

function drawMap() {
  const box = { x: 0, y: 0, w: by("map").clientWidth, h: by("map").clientHeight };
  if (!box.w || !data.sizes) return;
  const parts = data.sizes.parts.filter((part) => part.bytes > 0);
  const groups = Object.entries(group(parts));
  const sum = (list) => list.reduce((total, part) => total + part.bytes, 0);
  groups.sort((a, b) => sum(b[1]) - sum(a[1]));
  const targets = [...new Set(parts.map((part) => part.target))].filter(Boolean).sort();
  const nodes = [];
  squares(groups.map(([, list]) => sum(list)), box).forEach((area, number) => {
    const list = [...groups[number][1]].sort((a, b) => b.bytes - a.bytes);
    squares(list.map((part) => part.bytes), area).forEach((place, inner) => {
      const part = list[inner];
      const name = part.op ? `${part.op}, ${part.target}` : part.kind;
      const node = element("div", undefined, { title: `${name}: ${part.op ? part.kind + ", " : ""}${bytes(part.bytes)}` });
      node.style.cssText = `left:${place.x}px;top:${place.y}px;width:${place.w}px;height:${place.h}px;background:${colourOf(part.target, targets)}`;
      if (place.w > 46 && place.h > 38) {
        node.append(element("b", part.op || part.kind), element("small", bytes(part.bytes)));
        node.className = "named";
      }
      nodes.push(node);
    });
  });
  by("map").replaceChildren(...nodes);
  by("targets").replaceChildren(...[...targets, "all targets"].map((target, number) => {
    const entry = element("span", target);
    const colour = element("i");
    colour.style.background = number < targets.length ? colourOf(target, targets) : GREY;
    entry.prepend(colour);
    return entry;
  }));
}

function group(parts) {
  const found = {};
  for (const part of parts) (found[part.op] ??= []).push(part);
  return found;
}

function startSizes() {
  if (!data.sizes) return;
  by("total").textContent = `${data.sizes.library}: ${bytes(data.sizes.total)}. An area is as large as its part of the file.`;
  const head = element("tr");
  head.append(...["op", "target", "what", "size"].map((name) => element("th", name, { scope: "col", class: name === "size" ? "number" : "" })));
  by("parts").tHead.append(head);
  for (const part of [...data.sizes.parts].sort((a, b) => b.bytes - a.bytes)) {
    const row = element("tr");
    row.append(element("td", part.op), element("td", part.target), element("td", part.kind), element("td", bytes(part.bytes), { class: "number" }));
    by("parts").tBodies[0].append(row);
  }
  window.addEventListener("resize", drawMap);
}

// ---- which part is shown ----

function route() {
  const wanted = location.hash.slice(1) || "variants";
  const [part, number] = wanted.split("-");
  const links = [...document.querySelectorAll("nav a")];
  const link = links.find((one) => !one.hidden && one.hash === `#${part}`) ?? links[0];
  for (const one of links) {
    const chosen = one === link;
    if (chosen) one.setAttribute("aria-current", "page");
    else one.removeAttribute("aria-current");
    by(`part-${one.hash.slice(1)}`).hidden = !chosen;
  }
  if (link.hash === "#kernel") showKernel(Math.min(Number(number) || 0, data.details.length - 1));
  if (link.hash === "#sizes") drawMap();
}

function start() {
  const empty = { kernel: !data.details.length, sizes: !data.sizes, benchmarks: !document.querySelector("#part-benchmarks figure") };
  for (const [name, is] of Object.entries(empty)) document.querySelector(`nav a[href="#${name}"]`).hidden = is;
  startTable();
  startPanes();
  startSizes();
  window.addEventListener("hashchange", route);
  route();
}

start();
