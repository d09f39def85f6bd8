// Live updates. One stream of events for all tabs of a browser: the tab that holds the lock reads it and tells the
// others. It carries names of topics; a tab whose page shows one of them fetches the page again, and its panels that
// have changed are replaced. Without a stream a tab asks every few seconds.
"use strict";
(function () {
  const body = document.body;
  const lamp = document.getElementById("lamp");
  const agent = document.getElementById("live");
  if (!agent) return;
  const root = body.dataset.root;
  const topics = new Set((body.dataset.topics || "").split(" ").filter(Boolean));
  const name = "penstock-live:" + location.host + root;
  const LEAST = 1000, POLL = 5000;
  let seen = Number(body.dataset.seen || 0); // the number of the last change that this page knows of
  let state = "", due = false, last = 0, timer = 0, polling = 0, asking = false;

  function show(next) {
    if (state === next) return;
    state = next;
    if (lamp) { lamp.dataset.state = next; lamp.textContent = next; }
  }

  // --- fetch and replace ---
  function refresh() {
    if (document.hidden || asking) { due = true; return; }
    const wait = last + LEAST - Date.now();
    if (wait > 0) { if (!timer) timer = setTimeout(() => { timer = 0; refresh(); }, wait); return; }
    const ids = Array.from(document.querySelectorAll("[data-live]")).map((one) => "#" + one.id);
    if (!ids.length) return;
    due = false; last = Date.now(); asking = true;
    agent.setAttribute("hx-select-oob", ids.join(","));
    htmx.trigger(agent, "changed");
  }
  document.addEventListener("visibilitychange", () => { if (!document.hidden && due) refresh(); });
  body.addEventListener("htmx:afterRequest", (event) => {
    if (event.detail.elt !== agent) return;
    asking = false;
    if (due) refresh();
  });

  const keys = (panel) => Array.from(panel.querySelectorAll("[data-row]")).map((row) => row.dataset.row);
  const busy = (panel) => panel.matches(":hover") || panel.contains(document.activeElement) || !!panel.querySelector("details[open], input:checked");
  body.addEventListener("htmx:oobBeforeSwap", (event) => {
    const target = event.detail.target;
    const fresh = event.detail.fragment.firstElementChild;
    if (!fresh || !target.hasAttribute("data-live")) return;
    const pill = target.querySelector(".new");
    const clone = target.cloneNode(true);
    clone.querySelectorAll(".chosen").forEach((row) => { row.classList.remove("chosen"); if (!row.className) row.removeAttribute("class"); });
    if (clone.innerHTML === fresh.innerHTML) { event.detail.shouldSwap = false; return; }
    const before = keys(target), now = keys(fresh);
    const moved = before.join("\n") !== now.join("\n");
    if ((moved && target.matches(":hover")) || (moved && target.hasAttribute("data-still"))) {
      // Rows do not move under the cursor: say how many are new, and wait.
      event.detail.shouldSwap = false;
      const known = new Set(before);
      const count = now.filter((one) => !known.has(one)).length;
      if (pill) {
        pill.hidden = false;
        pill.textContent = (count ? count + " new" : "changed") + " ▴";
        pill.onclick = () => { target.removeAttribute("data-still"); location.reload(); };
      }
      return;
    }
    if (!moved && busy(target)) keep(target, fresh, event);
  });

  // Somebody is at work in this panel: change the cells in place, and leave everything else as it is.
  function keep(target, fresh, event) {
    event.detail.shouldSwap = false;
    const rows = new Map(Array.from(fresh.querySelectorAll("[data-row]")).map((row) => [row.dataset.row, row]));
    for (const row of target.querySelectorAll("[data-row]")) {
      const other = rows.get(row.dataset.row);
      if (!other || row.children.length !== other.children.length) continue;
      Array.from(row.children).forEach((cell, place) => {
        const next = other.children[place];
        if (cell.innerHTML !== next.innerHTML && !cell.contains(document.activeElement)) cell.innerHTML = next.innerHTML;
      });
    }
  }

  // --- what has changed ---
  function hear(text, id) {
    const said = text.split(" ").filter(Boolean);
    if (!said.length && id !== seen) refresh(); // joined late
    seen = id;
    if (said.some((one) => topics.has(one)) || (topics.size && said.includes("beat"))) refresh();
  }
  function poll(on) {
    if (on && !polling) { polling = setInterval(refresh, POLL); show("polling"); }
    if (!on && polling) { clearInterval(polling); polling = 0; }
  }

  const channel = "BroadcastChannel" in window ? new BroadcastChannel(name) : null;
  if (channel) channel.onmessage = (event) => {
    if (event.data.topics !== undefined) { poll(false); show("live"); hear(event.data.topics, event.data.id); }
    if (event.data.lost) poll(true);
    if (event.data.who && source) channel.postMessage({ topics: "", id: seen });
  };
  let source = null;
  function lead() {
    return new Promise(() => {
      let failures = 0;
      const open = () => {
        source = new EventSource(root + "/-/events?after=" + seen);
        source.onmessage = (event) => {
          failures = 0;
          poll(false); show("live");
          const id = Number(event.lastEventId);
          if (channel) channel.postMessage({ topics: event.data, id: id });
          hear(event.data, id);
        };
        source.onerror = () => {
          if (source.readyState === EventSource.CLOSED) setTimeout(open, Math.min(30000, 1000 * 2 ** failures));
          failures += 1;
          if (failures > 2) { poll(true); if (channel) channel.postMessage({ lost: true }); }
        };
      };
      open();
    });
  }
  window.addEventListener("offline", () => show("offline"));
  window.addEventListener("online", () => { show("polling"); refresh(); });
  if (topics.size === 0) { show("still"); return; }
  show("joining");
  if (navigator.locks && channel && "EventSource" in window) {
    navigator.locks.request(name, lead);
    channel.postMessage({ who: true });
  } else poll(true);
})();
