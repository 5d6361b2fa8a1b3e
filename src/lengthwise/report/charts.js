"use strict";
// Draws the charts of the report and of the live page, with their legends and tooltips. Names from users are only ever assigned to
// textContent. The other scripts use `lengthwiseCharts`, and the document hears the event "hidden" when a label is hidden or shown.
const lengthwiseCharts = (() => {
  const config = {}; /*config*/
  const hidden = new Set(); // labels; the same in all charts and tables
  const charts = new Map(); // those that are drawn, by their place
  const all = (selector, root = document) => [...root.querySelectorAll(selector)];

  async function unpacked(script) {
    if (script.type === "application/json") return JSON.parse(script.textContent);
    const bytes = Uint8Array.from(atob(script.textContent), (letter) => letter.charCodeAt(0));
    return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).json();
  }

  // ---- legend ---------------------------------------------------------------------------------------------------

  function fade(rows) {
    for (const row of rows) row.classList.toggle("off", [row.dataset.label, row.dataset.second].some((label) => hidden.has(label)));
  }

  function showKeys() {
    for (const key of all(".key")) key.setAttribute("aria-pressed", String(!hidden.has(key.dataset.label)));
    for (const button of all(".legend .all")) button.hidden = hidden.size === 0;
    fade(all(".scores tbody tr"));
  }

  function applyHidden() {
    showKeys();
    for (const { view, refresh } of charts.values()) {
      view.signal("hidden", [...hidden]).signal("focus", "").runAsync();
      refresh();
    }
    document.dispatchEvent(new Event("hidden"));
  }

  function focusOn(label) {
    for (const { view, labels } of charts.values())
      view.signal("focus", !hidden.has(label) && labels.has(label) ? label : "").runAsync();
  }

  document.addEventListener("click", (event) => {
    const label = event.target.closest(".key")?.dataset.label;
    if (event.target.closest(".legend .all")) hidden.clear();
    else if (label === undefined) return;
    else if (!hidden.delete(label)) hidden.add(label);
    applyHidden();
  });
  for (const [begin, end, wanted] of [
    ["pointerover", "pointerout", (event) => event.pointerType === "mouse"],
    ["focusin", "focusout", (event) => event.target.matches(":focus-visible")],
  ]) {
    document.addEventListener(begin, (event) => {
      const key = event.target.closest(".key");
      if (key && wanted(event)) focusOn(key.dataset.label);
    });
    document.addEventListener(end, (event) => event.target.closest(".key") && focusOn(""));
  }

  // ---- tooltip ----------------------------------------------------------------------------------------------------

  function element(tag, className, text) {
    const node = document.createElement(tag);
    node.className = className;
    if (text !== undefined) node.textContent = text;
    return node;
  }

  // The tooltip lists every visible encoding at the length nearest to the pointer, best first.
  function tooltip(plot, view, info, allRows) {
    const place = plot.querySelector(".chart");
    const tip = plot.querySelector(".tip");
    const columns = info.columns.map((column) => ({ ...column, rows: allRows.filter((row) => row.x === column.x && row.mean) }));
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
        const x = view.origin()[0] + view.scale("x")(columns[index].x);
        const room = place.clientWidth;
        const width = tip.offsetWidth;
        const left = x + 14 + width <= room ? x + 14 : x - 14 - width;
        tip.style.left = `${Math.max(0, Math.min(left, room - width))}px`;
        const top = y === null ? 8 : view.origin()[1] + y - tip.offsetHeight / 2;
        tip.style.top = `${Math.max(0, Math.min(top, place.clientHeight - tip.offsetHeight))}px`;
      }
      view.signal("at", index < 0 ? null : columns[index].x).runAsync();
    }

    function fill() {
      const { text, note, rows } = columns[at];
      const scale = view.scale("y");
      const points = rows
        .filter((row) => !row.baseline && !hidden.has(row.label))
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
      for (const b of rows.filter((row) => row.baseline)) {
        const row = element("tr", "baseline");
        row.append(element("th", "", b.label), element("td", "mean", b.mean), element("td", "", b.baseline));
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
      const far = columns.map((c) => Math.abs(view.scale("x")(c.x) - x));
      show(far.indexOf(Math.min(...far)), y);
    }

    const ended = new AbortController(); // when the chart is drawn again
    const listen = (name, action) => place.addEventListener(name, action, { signal: ended.signal });
    listen("pointermove", move);
    listen("pointerdown", move);
    listen("pointerleave", (event) => event.pointerType === "mouse" && show(-1, null));
    listen("blur", () => show(-1, null));
    listen("keydown", (event) => {
      const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      if (event.key === "Escape") show(-1, null);
      if (step === undefined) return;
      event.preventDefault();
      const last = columns.length - 1;
      show(at < 0 ? (step > 0 ? 0 : last) : Math.max(0, Math.min(last, at + step)), null);
    });
    return { refresh: () => at >= 0 && fill(), end: () => (show(-1, null), ended.abort()) };
  }

  // ---- drawing ----------------------------------------------------------------------------------------------------

  const withoutTooltip = { refresh: () => {}, end: () => {} };

  async function draw(plot) {
    const place = plot.querySelector(".chart");
    const info = await unpacked(plot.querySelector("script"));
    const columns = Object.entries(info.rows);
    const rows = (columns[0]?.[1] ?? []).map((_, n) => Object.fromEntries(columns.map(([name, cells]) => [name, cells[n]])));
    const options = { actions: false, renderer: "svg", ast: true, tooltip: false, defaultStyle: false, mode: "vega-lite", config };
    const described = place.getAttribute("aria-label");
    const old = charts.get(place);
    old?.end();
    info.spec.datasets = { ...info.spec.datasets, rows };
    info.spec.params.find((param) => param.name === "hidden").value = [...hidden];
    const { view } = await vegaEmbed(place, info.spec, options);
    old?.view.finalize();
    view.description(described); // Vega replaces the label and the role with its own
    place.setAttribute("role", "img");
    place.removeAttribute("aria-roledescription");
    let width = place.clientWidth;
    const sizes = new ResizeObserver(() => {
      if ([0, width].includes(place.clientWidth)) return; // hidden, or not changed
      width = place.clientWidth;
      view.width(width).runAsync();
    });
    sizes.observe(place);
    const tips = info.columns.length ? tooltip(plot, view, info, rows) : withoutTooltip;
    const end = () => (sizes.disconnect(), tips.end());
    charts.set(place, { view, labels: new Set(rows.map((row) => row.label)), refresh: tips.refresh, end });
    const ranges = all("[data-range]", plot.closest("figure") ?? plot);
    for (const button of ranges)
      button.addEventListener("click", () => {
        for (const other of ranges) other.setAttribute("aria-pressed", String(other === button));
        view.signal("range", Number(button.dataset.range)).runAsync();
      });
  }

  // Draw charts, in these places or again, and forget those that have left the page.
  function drawAll(plots) {
    for (const [place, { view, end }] of charts)
      if (!place.isConnected) {
        end();
        view.finalize();
        charts.delete(place);
      }
    return Promise.all(
      plots.map((plot) =>
        draw(plot).catch((error) => {
          plot.querySelector(".chart").textContent = "The chart could not be drawn. The table shows the same numbers.";
          console.error(error);
        }),
      ),
    );
  }

  return { all, applyHidden, drawAll, element, fade, hidden, showKeys, unpacked };
})();
