// The sizes of a library as a map of areas, and as a table.

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
