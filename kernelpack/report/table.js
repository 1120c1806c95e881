// The table of variants: searched, sorted, and leading to the stages of those that have them.

const CODE_COLUMNS = ["op", "variant", "dtype", "target", "config"];
const FIGURES = {
  registers: "registers", spills: "spills", shared: "shared memory", stack: "stack", scratch: "scratch", num_warps: "warps",
  waits_at_once: "waits at once",
};

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
