// The loops of a kernel as a timeline.

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
