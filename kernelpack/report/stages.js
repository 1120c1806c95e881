// A kernel's source beside its stages: a line shows its lines on the other side.

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
