// Which part of the page is shown.

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
