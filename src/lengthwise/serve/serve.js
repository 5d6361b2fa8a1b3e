"use strict";
// Asks for the same page every two seconds and replaces the parts of it that have changed, and keeps the chosen runs in the address.
// charts.js draws the charts. Names from the database are only ever assigned to textContent, or come escaped from the server.
(() => {
  const EVERY = 2000; // milliseconds
  const MOST = 20; // runs side by side, as on the server
  const { all, drawAll, showKeys } = lengthwiseCharts;
  const served = new Map(); // the HTML of the parts as the server sent it, by their id
  let tag = null;

  // ---- chosen runs ------------------------------------------------------------------------------------------------

  const chosen = () => (new URLSearchParams(location.search).get("runs") ?? "").split(",").filter(Boolean);

  function withRuns(href, keys) {
    const address = new URL(href, location.href);
    if (keys.length) address.searchParams.set("runs", keys.join(","));
    else address.searchParams.delete("runs");
    return address.pathname + address.search.replaceAll("%2C", ",");
  }

  function showChosen() {
    const keys = chosen();
    for (const box of all(".choose")) {
      box.checked = keys.includes(box.value);
      box.disabled = !box.checked && keys.length >= MOST;
    }
    for (const link of all("a[data-carry]")) link.setAttribute("href", withRuns(link.getAttribute("href"), keys));
    for (const input of all("input[name=runs]")) input.value = keys.join(",");
    const tray = document.getElementById("tray");
    tray.hidden = keys.length === 0 || location.pathname === "/compare";
    const most = keys.length >= MOST ? " (the most that fit)" : "";
    tray.querySelector("span").textContent = `${keys.length} run${keys.length === 1 ? "" : "s"} chosen${most}`;
  }

  function choose(keys) {
    history.replaceState(null, "", withRuns(location.href, keys));
    showChosen();
    refresh();
  }

  document.addEventListener("change", (event) => {
    const box = event.target.closest(".choose");
    if (!box) return;
    const others = chosen().filter((key) => key !== box.value);
    choose(box.checked ? [...others, box.value] : others);
  });
  document.getElementById("clear").addEventListener("click", () => choose([]));

  // ---- updates ----------------------------------------------------------------------------------------------------

  const notice = document.getElementById("notice");

  function say(line) {
    notice.textContent = line;
    notice.hidden = !line;
  }

  function remember(root) {
    for (const part of all("[data-live]", root)) served.set(part.id, part.innerHTML);
  }

  // The chart of a part that has changed is drawn in the old one's place, so that the page does not jump.
  function replace(part, fresh) {
    if (part.matches(".plot")) {
      part.querySelector("script").replaceWith(document.importNode(fresh.querySelector("script"), true));
      return [part];
    }
    const focused = part.contains(document.activeElement) ? document.activeElement : null;
    const left = part.querySelector(".scroll")?.scrollLeft ?? 0;
    const old = new Map(all(".plot", part).map((plot) => [plot.id, plot]));
    const content = document.importNode(fresh, true);
    const changed = [];
    for (const plot of all(".plot", content)) {
      const before = old.get(plot.id);
      if (!before) changed.push(plot);
      else {
        if (served.get(plot.id) !== plot.innerHTML) {
          before.querySelector("script").replaceWith(plot.querySelector("script").cloneNode(true));
          changed.push(before);
        }
        served.set(plot.id, plot.innerHTML);
        plot.replaceWith(before);
      }
    }
    part.replaceChildren(...content.childNodes);
    const box = part.querySelector(".scroll");
    if (box) box.scrollLeft = left;
    const again = focused?.value && all(".choose", part).find((input) => input.value === focused.value);
    again?.focus({ preventScroll: true });
    return changed;
  }

  function update(text) {
    const page = new DOMParser().parseFromString(text, "text/html");
    const changed = [];
    for (const part of all("[data-live]").filter((one) => !one.parentElement.closest("[data-live]"))) {
      const fresh = page.getElementById(part.id);
      if (!fresh || served.get(part.id) === fresh.innerHTML) continue;
      const html = fresh.innerHTML;
      changed.push(...replace(part, fresh));
      served.set(part.id, html);
    }
    showKeys();
    showChosen();
    markTables();
    return drawAll(changed);
  }

  let asking = null; // the request that is under way

  // What is replaced while a key or a button is held on it would never hear of its release, so updates wait until then.
  let released = Promise.resolve();
  let release = () => {};
  for (const event of ["keydown", "pointerdown"])
    document.addEventListener(event, () => (release(), (released = new Promise((resolve) => (release = resolve)))), true);
  for (const event of ["keyup", "pointerup", "pointercancel", "blur"])
    window.addEventListener(event, () => setTimeout(release), true); // the click comes after the pointer is up

  // The edge of a table fades while there are more columns to the right.
  function markTables() {
    for (const box of all(".scroll")) box.classList.toggle("more", box.scrollWidth - box.clientWidth - box.scrollLeft > 1);
  }
  document.addEventListener("scroll", markTables, { capture: true, passive: true });
  window.addEventListener("resize", markTables);

  async function refresh() {
    asking?.abort();
    const own = (asking = new AbortController());
    const address = location.pathname + location.search;
    try {
      const headers = tag ? { "If-None-Match": tag } : {};
      const answer = await fetch(address, { headers, cache: "no-store", signal: own.signal });
      const text = answer.status === 304 ? "" : await answer.text();
      if (asking !== own) return;
      const { failed } = document.body.dataset;
      if (answer.ok || answer.status === 304) {
        say("");
        if (failed !== undefined) location.reload();
        else if (text) {
          await released;
          if (asking !== own) return;
          tag = answer.headers.get("ETag");
          await update(text);
        }
      } else if (failed === undefined) {
        const html = answer.headers.get("Content-Type")?.startsWith("text/html");
        const line = html ? new DOMParser().parseFromString(text, "text/html").querySelector("#line p")?.textContent : text;
        say(line || `The server answered with status ${answer.status}.`);
      }
    } catch (error) {
      if (error.name === "AbortError") return;
      say("The server does not answer. This page tries again every two seconds.");
    } finally {
      if (asking === own) asking = null;
    }
  }

  remember(document);
  showChosen();
  markTables();
  drawAll(all(".plot")).then(() => (document.documentElement.dataset.ready = "yes"));
  setInterval(() => document.hidden || asking || refresh(), EVERY);
  document.addEventListener("visibilitychange", () => document.hidden || refresh());
  window.addEventListener("popstate", () => location.reload());
})();
