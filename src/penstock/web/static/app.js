// Keys, dialogs, copying and the theme. Pages work without it.
"use strict";
(function () {
  const root = document.body.dataset.root;
  const dialog = document.getElementById("dialog");
  const help = document.getElementById("help");
  const $$ = (what) => Array.from(document.querySelectorAll(what));

  // --- dialogs ---
  document.body.addEventListener("htmx:afterSwap", (event) => {
    if (event.detail.target === dialog && !dialog.open) {
      dialog.showModal();
      const first = dialog.querySelector("[autofocus], input:not([type=hidden]), textarea, button");
      if (first) first.focus();
    }
  });
  // A form that was filled in wrongly comes back with what is wrong: show it.
  document.body.addEventListener("htmx:beforeSwap", (event) => {
    if (event.detail.xhr.status === 422 && event.detail.target === dialog) event.detail.shouldSwap = true;
  });
  document.addEventListener("click", (event) => {
    const at = event.target;
    if (at === dialog || at === help) at.close(); // the backdrop
    if (at.closest("[data-close]")) { event.preventDefault(); at.closest("dialog") ? at.closest("dialog").close() : history.back(); }
    const copy = at.closest("[data-copy]");
    if (copy) copied(copy);
    if (at.closest("[data-theme-toggle]")) toggle();
    if (at.closest("[data-help]")) help.showModal();
    for (const open of $$("details.how[open], details.who[open]")) if (!open.contains(at)) open.open = false;
  });

  async function copied(button) {
    const from = document.getElementById(button.dataset.copy);
    const text = button.dataset.text || (from ? from.textContent : "");
    try { await navigator.clipboard.writeText(text); } catch (_) {
      const range = document.createRange();
      if (from) { range.selectNodeContents(from); getSelection().removeAllRanges(); getSelection().addRange(range); }
    }
    const before = button.textContent;
    button.textContent = "copied";
    setTimeout(() => { button.textContent = before; }, 1200);
  }

  function toggle() {
    const dark = getComputedStyle(document.documentElement).colorScheme.includes("dark") &&
      (document.documentElement.dataset.theme === "dark" || (!document.documentElement.dataset.theme && matchMedia("(prefers-color-scheme: dark)").matches));
    const next = dark ? "light" : "dark";
    document.documentElement.dataset.theme = next;
    try { localStorage.setItem("penstock-theme", next); } catch (_) { /* for this page only */ }
  }

  // --- keys ---
  let leader = 0;
  const rows = () => $$("tbody tr[data-row], .problems li[data-row]").filter((row) => row.offsetParent !== null);
  function choose(step) {
    const all = rows();
    if (!all.length) return;
    const at = all.findIndex((row) => row.classList.contains("chosen"));
    const next = all[Math.max(0, Math.min(all.length - 1, at < 0 ? (step > 0 ? 0 : all.length - 1) : at + step))];
    all.forEach((row) => row.classList.toggle("chosen", row === next));
    const link = next.querySelector("a[href]");
    if (link) link.focus({ preventScroll: true });
    next.scrollIntoView({ block: "nearest" });
  }
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.target.closest("input, textarea, select")) {
      if (event.key === "Escape") event.target.blur();
      return;
    }
    if (dialog.open || help.open) return;
    if (leader && Date.now() - leader < 1500) {
      leader = 0;
      const link = document.querySelector(`[data-key="${CSS.escape(event.key)}"]`);
      if (link) { event.preventDefault(); link.click(); }
      return;
    }
    if (event.key === "g") { leader = Date.now(); return; }
    if (event.key === "/") { event.preventDefault(); document.getElementById("search").focus(); }
    else if (event.key === "?") { event.preventDefault(); help.showModal(); }
    else if (event.key === "j") choose(1);
    else if (event.key === "k") choose(-1);
    else if (event.key === "t") toggle();
    else if (event.key === ".") {
      const chosen = document.querySelector(".chosen");
      const act = (chosen && chosen.querySelector(".acts .button, .button")) || document.querySelector(".actions-bar .button, .head .button");
      if (act) { event.preventDefault(); act.focus(); if (chosen) act.click(); }
    } else if (event.key === "Escape") {
      for (const open of $$("details[open]")) open.open = false;
      for (const row of $$(".chosen")) row.classList.remove("chosen");
    }
  });

  // What was just done is said once: a reload does not say it again.
  const here = new URL(location.href);
  if (here.searchParams.has("did")) {
    here.searchParams.delete("did");
    here.searchParams.delete("n");
    history.replaceState(null, "", here);
  }
  void root;
})();
