"use strict";
// Draws the charts, and handles the legend, the tooltip, the sortable tables and printing. Names from users are only ever
// assigned to textContent.
(() => {
  const { tasks } = JSON.parse(document.getElementById("data").textContent);
  const hidden = new Set(); // labels; the same in all charts and tables
  const charts = [];
  const all = (selector, root = document) => [...root.querySelectorAll(selector)];

  function send(values) {
    for (const chart of charts) {
      for (const [name, value] of Object.entries(values(chart))) chart.view.signal(name, value);
      chart.view.runAsync();
    }
  }

  // ---- legend ---------------------------------------------------------------------------------------------------

  const idOf = (chart, label) => chart.info.series.find((s) => s.label === label)?.id ?? "";

  function applyHidden() {
    for (const key of all(".key")) key.setAttribute("aria-pressed", String(!hidden.has(key.dataset.label)));
    for (const row of all(".scores tbody tr")) row.classList.toggle("off", hidden.has(row.dataset.label));
    for (const part of all("[data-series]")) part.classList.toggle("off", hidden.has(part.dataset.series));
    for (const button of all(".legend .all")) button.hidden = hidden.size === 0;
    send((chart) => ({ hidden: chart.info.series.filter((s) => hidden.has(s.label)).map((s) => s.id), focus: "" }));
    for (const chart of charts) chart.refresh();
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

  // ---- charts ---------------------------------------------------------------------------------------------------

  function element(tag, className, text) {
    const node = document.createElement(tag);
    node.className = className;
    if (text !== undefined) node.textContent = text;
    return node;
  }

  // The tooltip lists every visible encoding at the length nearest to the pointer, best first.
  function tooltip(figure, view, info) {
    const place = figure.querySelector(".chart");
    const tip = figure.querySelector(".tip");
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
        const x = view.origin()[0] + view.scale("x")(info.lengths[index].length);
        const room = place.clientWidth;
        const width = tip.offsetWidth;
        const left = x + 14 + width <= room ? x + 14 : x - 14 - width;
        tip.style.left = `${Math.max(0, Math.min(left, room - width))}px`;
        const top = y === null ? 8 : view.origin()[1] + y - tip.offsetHeight / 2;
        tip.style.top = `${Math.max(0, Math.min(top, place.clientHeight - tip.offsetHeight))}px`;
      }
      view.signal("at", index < 0 ? 0 : info.lengths[index].length).runAsync();
    }

    function fill() {
      const { length, text, times } = info.lengths[at];
      const scale = view.scale("y");
      const points = info.series
        .filter((s) => !hidden.has(s.label) && s.points[length])
        .map((s) => ({ ...s.points[length], id: s.id, label: s.label }))
        .sort((a, b) => (a.y === null) - (b.y === null) || (info.better === "lower" ? a.y - b.y : b.y - a.y));
      const drawn = points.filter((p) => p.y !== null);
      const distance = (p) => Math.abs(Math.max(0, scale(p.y)) - height);
      const nearest = height === null || !drawn.length ? null : drawn.reduce((a, b) => (distance(b) < distance(a) ? b : a));
      const head = element("p", "head");
      head.append(element("b", "", text), element("span", "", times));
      const table = element("table", "");
      for (const p of points) {
        const row = element("tr", p === nearest ? "nearest" : "");
        const name = element("th", "");
        name.append(figure.querySelector(`.key[data-id="${p.id}"] svg`).cloneNode(true), element("span", "", p.label));
        row.append(name, element("td", "mean", p.mean), element("td", "", p.interval));
        table.append(row);
      }
      for (const b of info.baselines) {
        if (!(length in b.points)) continue;
        const row = element("tr", "baseline");
        row.append(element("th", "", b.label), element("td", "mean", b.points[length]), element("td", "", b.kind));
        table.append(row);
      }
      const counts = new Set(points.map((p) => p.n));
      const foot = counts.size === 1 ? [...counts][0] : points.map((p) => `${p.label}: ${p.n}`).join("; ");
      tip.replaceChildren(head, table, element("p", "foot", points.length ? `95 % interval over ${foot}` : "no score at this length"));
    }

    function move(event) {
      const box = place.querySelector("svg").getBoundingClientRect();
      const x = event.clientX - box.left - view.origin()[0];
      const y = event.clientY - box.top - view.origin()[1];
      if (x < -30 || x > view.width() + 30 || y < -20 || y > view.height() + 40) return show(-1, null);
      const far = info.lengths.map((l) => Math.abs(view.scale("x")(l.length) - x));
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
      const last = info.lengths.length - 1;
      show(at < 0 ? (step > 0 ? 0 : last) : Math.max(0, Math.min(last, at + step)), null);
    });
    return () => at >= 0 && fill();
  }

  async function draw(figure, info) {
    const place = figure.querySelector(".chart");
    const options = { actions: false, renderer: "svg", ast: true, tooltip: false, defaultStyle: false, mode: "vega-lite" };
    const described = place.getAttribute("aria-label");
    const { view } = await vegaEmbed(place, info.spec, options);
    view.description(described); // Vega replaces the label and the role with its own
    place.setAttribute("role", "img");
    place.removeAttribute("aria-roledescription");
    charts.push({ view, info, refresh: tooltip(figure, view, info) });
    const ranges = all("[data-range]", figure);
    for (const button of ranges)
      button.addEventListener("click", () => {
        for (const other of ranges) other.setAttribute("aria-pressed", String(other === button));
        view.signal("range", Number(button.dataset.range)).runAsync();
      });
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

  // ---- printing: open every details element, and close it again afterwards ------------------------------------------

  let closed = [];
  window.addEventListener("beforeprint", () => {
    closed = all("details:not([open])");
    for (const details of closed) details.open = true;
  });
  window.addEventListener("afterprint", () => closed.forEach((details) => (details.open = false)));

  const figures = all("figure");
  Promise.allSettled(figures.map((figure, n) => draw(figure, tasks[n]))).then((results) => {
    results.forEach((result, n) => {
      if (result.status === "fulfilled") return;
      figures[n].querySelector(".chart").textContent = "The chart could not be drawn. The table shows the same numbers.";
      console.error(result.reason);
    });
    document.documentElement.dataset.ready = "yes";
  });
})();
