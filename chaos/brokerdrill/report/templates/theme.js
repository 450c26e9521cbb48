// The reader's choice of light or dark; without one the system's. Storage may be forbidden for local files.
(function () {
  var root = document.documentElement, system = matchMedia("(prefers-color-scheme: dark)");
  function stored() { try { return localStorage.getItem("brokerdrill-theme"); } catch (error) { return null; } }
  function dark() { return root.dataset.theme ? root.dataset.theme === "dark" : system.matches; }
  function changed() {
    var button = document.getElementById("theme");
    if (button) { button.textContent = dark() ? "Light" : "Dark"; button.setAttribute("aria-label", "Switch to " + (dark() ? "light" : "dark") + " colours"); }
    document.dispatchEvent(new Event("themechange"));
  }
  var choice = stored();
  if (choice === "dark" || choice === "light") root.dataset.theme = choice;
  system.addEventListener("change", changed);
  document.addEventListener("DOMContentLoaded", function () {
    var button = document.getElementById("theme");
    button.hidden = false;
    button.addEventListener("click", function () {
      root.dataset.theme = dark() ? "light" : "dark";
      try { localStorage.setItem("brokerdrill-theme", root.dataset.theme); } catch (error) { /* this page only */ }
      changed();
    });
    changed();
  });
})();
