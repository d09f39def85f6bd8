// Boxes that are ticked: all of them at once, and how many.
"use strict";
(function () {
  const boxes = (name) => Array.from(document.querySelectorAll(`input[type=checkbox][name="${CSS.escape(name)}"]`));
  function count() {
    for (const shown of document.querySelectorAll("[data-count]")) {
      const all = boxes(shown.dataset.count), ticked = all.filter((one) => one.checked).length;
      shown.textContent = ticked ? ticked + " of " + all.length + " ticked" : shown.dataset.none;
      for (const head of document.querySelectorAll(`[data-all="${CSS.escape(shown.dataset.count)}"]`)) {
        head.checked = ticked > 0 && ticked === all.length;
        head.indeterminate = ticked > 0 && ticked < all.length;
      }
    }
  }
  document.addEventListener("change", (event) => {
    const name = event.target.dataset ? event.target.dataset.all : undefined;
    if (name) boxes(name).forEach((one) => { one.checked = event.target.checked; });
    count();
  });
  document.addEventListener("htmx:oobAfterSwap", count);
  document.addEventListener("keydown", (event) => {
    if (event.key !== "x" || event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input:not([type=checkbox]), textarea, select")) return;
    const box = document.querySelector("tr.chosen input[type=checkbox]");
    if (box) { box.checked = !box.checked; count(); }
  });
  count();
})();
