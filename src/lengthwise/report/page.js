"use strict";
// Draws the charts, and handles the legend, the filters, the tooltip, the sortable tables and printing. Names from users are only ever
// assigned to textContent.
(() => {
  const config = JSON.parse(document.getElementById("config").textContent);
  const hidden = new Set(); // labels; the same in all charts and tables
  const charts = []; // those that are drawn
  const all = (selector, root = document) => [...root.querySelectorAll(selector)];

  function send(values) {
    for (const chart of charts) {
      for (const [name, value] of Object.entries(values(chart))) chart.view.signal(name, value);
      chart.view.runAsync();
    }
  }

  // ---- legend ---------------------------------------------------------------------------------------------------

  const hiddenIds = (chart) => chart.info.series.filter((s) => hidden.has(s.label)).map((s) => s.id);
  const idOf = (chart, label) => chart.info.series.find((s) => s.label === label)?.id ?? "";

  function fade(rows) {
    for (const row of rows) row.classList.toggle("off", [row.dataset.label, row.dataset.second].some((label) => hidden.has(label)));
  }

  function applyHidden() {
    for (const key of all(".key")) key.setAttribute("aria-pressed", String(!hidden.has(key.dataset.label)));
    fade(all(".scores tbody tr"));
    for (const part of all("[data-series]")) part.classList.toggle("off", hidden.has(part.dataset.series));
    for (const button of all(".legend .all")) button.hidden = hidden.size === 0;
    send((chart) => ({ hidden: hiddenIds(chart), focus: "" }));
    for (const chart of charts) chart.refresh();
    keepInAddress();
  }

  const focusOn = (label) => send((chart) => ({ focus: label && !hidden.has(label) ? idOf(chart, label) : "" }));

  for (const key of all(".key")) {
    const label = key.dataset.label;
    key.addEventListener("click", () => {
      if (!hidden.delete(label)) hidden.add(label);
      applyHidden();
    });
    key.addEventListener("pointerenter", (event) => event.pointerType === "mouse" && focusOn(label));
    key.addEventListener("pointerleave", () => focusOn(""));
    key.addEventListener("focus", () => key.matches(":focus-visible") && focusOn(label));
    key.addEventListener("blur", () => focusOn(""));
  }
  for (const button of all(".legend .all"))
    button.addEventListener("click", () => {
      hidden.clear();
      applyHidden();
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

  function element(tag, className, text) {
    const node = document.createElement(tag);
    node.className = className;
    if (text !== undefined) node.textContent = text;
    return node;
  }

  // The tooltip lists every visible encoding at the length nearest to the pointer, best first.
  function tooltip(plot, view, info) {
    const place = plot.querySelector(".chart");
    const tip = plot.querySelector(".tip");
    let at = -1;
    let height = null;

    function show(index, y) {
      at = index;
      height = y;
      if (index < 0) {
        tip.hidden = true;
      } else {
        fill();
        tip.hidden = false;
        const x = view.origin()[0] + view.scale("x")(info.columns[index].x);
        const room = place.clientWidth;
        const width = tip.offsetWidth;
        const left = x + 14 + width <= room ? x + 14 : x - 14 - width;
        tip.style.left = `${Math.max(0, Math.min(left, room - width))}px`;
        const top = y === null ? 8 : view.origin()[1] + y - tip.offsetHeight / 2;
        tip.style.top = `${Math.max(0, Math.min(top, place.clientHeight - tip.offsetHeight))}px`;
      }
      view.signal("at", index < 0 ? null : info.columns[index].x).runAsync();
    }

    function fill() {
      const { text, note } = info.columns[at];
      const scale = view.scale("y");
      const points = info.series
        .filter((s) => !hidden.has(s.label) && s.points[at])
        .map((s) => ({ n: s.n, ...s.points[at], label: s.label, name: s.name }))
        .sort((a, b) => (a.y === null) - (b.y === null) || (info.better === "lower" ? a.y - b.y : b.y - a.y));
      const drawn = points.filter((p) => p.y !== null);
      const distance = (p) => Math.abs(Math.max(0, scale(p.y)) - height);
      const nearest = height === null || !drawn.length ? null : drawn.reduce((a, b) => (distance(b) < distance(a) ? b : a));
      const head = element("p", "head");
      head.append(element("b", "", text), element("span", "", note));
      const table = element("table", "");
      for (const p of points) {
        const row = element("tr", p === nearest ? "nearest" : "");
        const name = element("th", "");
        const key = all(".key").find((k) => k.dataset.label === p.label);
        name.append(...(key ? [key.firstElementChild.cloneNode(true)] : []), element("span", "", p.name));
        row.append(name, element("td", "mean", p.mean), element("td", "", p.interval));
        table.append(row);
      }
      for (const b of info.baselines) {
        if (b.points[at] === null) continue;
        const row = element("tr", "baseline");
        row.append(element("th", "", b.label), element("td", "mean", b.points[at]), element("td", "", b.kind));
        table.append(row);
      }
      const counts = new Set(points.map((p) => p.n));
      const foot = counts.size === 1 ? [...counts][0] : points.map((p) => `${p.name}: ${p.n}`).join("; ");
      tip.replaceChildren(head, table, element("p", "foot", points.length ? `95 % interval over ${foot}` : "no score at this length"));
    }

    function move(event) {
      const box = place.querySelector("svg").getBoundingClientRect();
      const x = event.clientX - box.left - view.origin()[0];
      const y = event.clientY - box.top - view.origin()[1];
      if (x < -30 || x > view.width() + 30 || y < -20 || y > view.height() + 40) return show(-1, null);
      const far = info.columns.map((c) => Math.abs(view.scale("x")(c.x) - x));
      show(far.indexOf(Math.min(...far)), y);
    }

    place.addEventListener("pointermove", move);
    place.addEventListener("pointerdown", move);
    place.addEventListener("pointerleave", (event) => event.pointerType === "mouse" && show(-1, null));
    place.addEventListener("blur", () => show(-1, null));
    place.addEventListener("keydown", (event) => {
      const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      if (event.key === "Escape") show(-1, null);
      if (step === undefined) return;
      event.preventDefault();
      const last = info.columns.length - 1;
      show(at < 0 ? (step > 0 ? 0 : last) : Math.max(0, Math.min(last, at + step)), null);
    });
    return () => at >= 0 && fill();
  }

  async function unpacked(script) {
    if (script.type === "application/json") return JSON.parse(script.textContent);
    const bytes = Uint8Array.from(atob(script.textContent), (letter) => letter.charCodeAt(0));
    return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).json();
  }

  async function draw(plot) {
    const place = plot.querySelector(".chart");
    const info = await unpacked(plot.querySelector("script"));
    const options = { actions: false, renderer: "svg", ast: true, tooltip: false, defaultStyle: false, mode: "vega-lite", config };
    const described = place.getAttribute("aria-label");
    const values = { names: info.names, hidden: hiddenIds({ info }) };
    info.spec.params.push(...Object.entries(values).map(([name, value]) => ({ name, value })));
    const { view } = await vegaEmbed(place, info.spec, options);
    view.description(described); // Vega replaces the label and the role with its own
    place.setAttribute("role", "img");
    place.removeAttribute("aria-roledescription");
    charts.push({ view, info, refresh: info.columns ? tooltip(plot, view, info) : () => {} });
    let width = place.clientWidth;
    new ResizeObserver(() => {
      if ([0, width].includes(place.clientWidth)) return; // hidden, or not changed
      width = place.clientWidth;
      view.width(width).runAsync();
    }).observe(place);
    const ranges = all("[data-range]", plot.closest("figure") ?? plot);
    for (const button of ranges)
      button.addEventListener("click", () => {
        for (const other of ranges) other.setAttribute("aria-pressed", String(other === button));
        view.signal("range", Number(button.dataset.range)).runAsync();
      });
  }

  // A chart is drawn when it comes near the visible part of the page, because a page can have a hundred of them.
  const waiting = new Set(all(".plot"));
  const drawNow = (plots) =>
    Promise.all(
      plots.map((plot) => {
        nearby.unobserve(plot);
        if (!waiting.delete(plot)) return undefined;
        return draw(plot).catch((error) => {
          plot.querySelector(".chart").textContent = "The chart could not be drawn. The table shows the same numbers.";
          console.error(error);
        });
      }),
    );
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
