"use strict";
// The filters, the sortable tables and printing. charts.js draws the charts.
(() => {
  const { all, applyHidden, drawAll, element, fade, hidden, unpacked } = lengthwiseCharts;

  document.addEventListener("hidden", () => {
    for (const part of all("[data-series]")) part.classList.toggle("off", hidden.has(part.dataset.series));
    keepInAddress();
  });

  // ---- filters, and an address that shows the same again ------------------------------------------------------------

  const filters = document.querySelector(".filters");
  const words = (text) => text.toLowerCase().split(/\s+/).filter(Boolean);
  const matches = (name, wanted) => wanted.length === 0 || wanted.some((word) => name.toLowerCase().includes(word));

  function applyFilters() {
    const tasks = words(filters.elements.tasks?.value ?? "");
    for (const part of all("[data-task]")) part.hidden = !matches(part.dataset.task, tasks);
    const encodings = words(filters.elements.encodings.value);
    const labels = new Set(all(".key").map((key) => key.dataset.label));
    for (const label of labels) matches(label, encodings) ? hidden.delete(label) : hidden.add(label);
    const shown = all("section[data-task]").filter((part) => !part.hidden).length;
    const some = tasks.length || encodings.length;
    filters.querySelector("output").textContent = some ? `${labels.size - hidden.size} encodings, ${shown} tasks` : "";
    applyHidden();
  }

  // The address has the filters and the hidden encodings after "#/", so that it can be sent to somebody else.
  function keepInAddress() {
    const state = new URLSearchParams();
    for (const input of filters ? all("input", filters) : []) if (input.value) state.set(input.name, input.value);
    if (!state.has("encodings")) for (const label of hidden) state.append("hide", label);
    const wanted = state.size ? `#/${state}` : "";
    if (wanted || location.hash.startsWith("#/"))
      history.replaceState(null, "", wanted || location.pathname + location.search);
  }

  function readAddress() {
    if (!location.hash.startsWith("#/")) return;
    const state = new URLSearchParams(location.hash.slice(2));
    for (const input of filters ? all("input", filters) : []) input.value = state.get(input.name) ?? "";
    if (filters) applyFilters();
    const known = new Set(all(".key").map((key) => key.dataset.label));
    for (const label of state.getAll("hide")) if (known.has(label)) hidden.add(label);
    if (hidden.size) applyHidden();
  }

  if (filters) {
    filters.hidden = false; // without JavaScript it would do nothing
    filters.addEventListener("input", applyFilters);
    filters.addEventListener("submit", (event) => event.preventDefault());
  }
  // A link to a run or to another part that is inside a closed element opens it.
  function openTarget() {
    const target = location.hash.startsWith("#/") ? null : document.getElementById(location.hash.slice(1));
    const details = target?.closest("details:not([open])");
    if (!details) return;
    details.open = true;
    target.scrollIntoView();
  }
  window.addEventListener("hashchange", openTarget);

  // ---- charts ---------------------------------------------------------------------------------------------------

  // A chart is drawn when it comes near the visible part of the page, because a page can have a hundred of them.
  const waiting = new Set(all(".plot"));
  const drawNow = (plots) => {
    const now = plots.filter((plot) => waiting.delete(plot));
    for (const plot of now) nearby.unobserve(plot);
    return drawAll(now);
  };
  const ready = () => (document.documentElement.dataset.ready = "yes");
  const nearby = new IntersectionObserver(
    (entries) => {
      const near = drawNow(entries.filter((entry) => entry.isIntersecting).map((entry) => entry.target));
      Promise.all([scores, near]).then(ready);
    },
    { rootMargin: "100%" },
  );

  // ---- pairs of encodings: the rows that are compressed are added when their table is opened ------------------------

  async function addRest(rest) {
    const script = rest.querySelector("script");
    rest.remove();
    const body = rest.table.tBodies[0];
    for (const [first, second, resolved, cells] of await unpacked(script)) {
      const row = body.insertRow();
      Object.assign(row.dataset, { label: first, second });
      const head = element("th", "");
      head.scope = "row";
      head.append(element("span", resolved ? "mark best" : "", `${first} and ${second}`));
      row.append(head);
      for (const [sort, mean, spread] of cells) {
        const cell = row.insertCell();
        cell.dataset.sort = sort;
        cell.append(element("span", "mean", mean), element("span", "spread", spread));
      }
    }
    fade(body.rows);
  }
  const rests = new Set(all(".rest"));
  const addRests = (root) => {
    for (const rest of all(".rest", root)) if (rests.delete(rest)) addRest(rest);
  };
  for (const rest of rests) {
    rest.table = rest.previousElementSibling.querySelector("table");
    const details = rest.closest("details");
    details.addEventListener("toggle", () => details.open && addRests(details));
  }

  // ---- tables ---------------------------------------------------------------------------------------------------

  const value = (row, column) => {
    const cell = row.cells[column];
    const text = cell.dataset.sort ?? cell.textContent.trim();
    return text !== "" && !Number.isNaN(Number(text)) ? Number(text) : text;
  };

  function compare(a, b) {
    if (a === "" || b === "") return (a === "") - (b === ""); // missing values come last in both orders
    return typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b));
  }

  for (const table of all("table.sortable")) {
    const buttons = all("thead button", table);
    buttons.forEach((button, column) =>
      button.addEventListener("click", () => {
        const head = button.closest("th");
        const up = head.getAttribute("aria-sort") !== "ascending";
        for (const other of buttons) other.closest("th").removeAttribute("aria-sort");
        head.setAttribute("aria-sort", up ? "ascending" : "descending");
        const rows = [...table.tBodies[0].rows].map((row) => [value(row, column), row]);
        rows.sort(([a], [b]) => (up || a === "" || b === "" ? compare(a, b) : compare(b, a)));
        table.tBodies[0].append(...rows.map(([, row]) => row));
      }),
    );
  }

  // The scores of each seed appear when the pointer rests on a cell. They are unpacked when it comes to the table.
  for (const box of all(".titles")) {
    const body = box.previousElementSibling.querySelector("tbody");
    const fill = async () => {
      const titles = await unpacked(box.querySelector("script"));
      for (const row of body.rows) titles[row.dataset.label].forEach((title, n) => (row.cells[n + 1].title = title));
    };
    body.addEventListener("pointerenter", fill, { once: true });
  }

  // A table that does not fit scrolls sideways. A line above it says so, the right edge fades while there are more
  // columns, and the first column casts a shadow over those that are hidden behind it.
  for (const box of all(".scroll")) {
    const hint = element("p", "hint", "scroll sideways to see more columns →");
    hint.setAttribute("aria-hidden", "true");
    box.before(hint);
    const mark = () => {
      const rest = box.scrollWidth - box.clientWidth;
      hint.hidden = rest <= 1;
      box.classList.toggle("more", rest - box.scrollLeft > 1);
      box.classList.toggle("scrolled", box.scrollLeft > 1);
    };
    box.addEventListener("scroll", mark, { passive: true });
    const sizes = new ResizeObserver(mark);
    sizes.observe(box);
    sizes.observe(box.firstElementChild);
    mark();
  }

  // ---- printing: open every details element and draw every chart, and close the elements again afterwards -------------

  let closed = [];
  window.addEventListener("beforeprint", () => {
    closed = all("details:not([open])");
    for (const details of closed) details.open = true;
    addRests(document);
    drawNow([...waiting]); // it ends before the browser prints, because it waits for nothing but itself
  });
  window.addEventListener("afterprint", () => closed.forEach((details) => (details.open = false)));

  readAddress();
  openTarget();
  const scores = drawNow(all("figure .plot")); // at once: there are few, and they are what most readers look for
  if (waiting.size === 0) scores.then(ready);
  for (const plot of waiting) nearby.observe(plot);
})();
