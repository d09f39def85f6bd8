// Loaded before the page is drawn, so that a chosen theme does not flash. Nothing is stored until somebody chooses.
"use strict";
(function () {
  try {
    const chosen = localStorage.getItem("penstock-theme");
    if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
  } catch (_) { /* storage is off: the system's theme */ }
})();
