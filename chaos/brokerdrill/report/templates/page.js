(function () {
  // Terms: one floating box, shown on hover, focus and touch, kept inside the window.
  var tip = document.createElement("div");
  tip.className = "tip"; tip.hidden = true; tip.setAttribute("role", "tooltip"); tip.id = "tip";
  document.body.appendChild(tip);
  function show(term) {
    tip.textContent = term.dataset.tip; tip.hidden = false; term.setAttribute("aria-describedby", "tip");
    var at = term.getBoundingClientRect(), width = tip.offsetWidth, height = tip.offsetHeight;
    var left = Math.max(12, Math.min(at.left, document.documentElement.clientWidth - width - 12));
    var above = at.top - height - 8;
    tip.style.left = left + scrollX + "px";
    tip.style.top = (above > 4 ? above : at.bottom + 8) + scrollY + "px";
  }
  function hide(term) { tip.hidden = true; term.removeAttribute("aria-describedby"); }
  document.querySelectorAll(".term").forEach(function (term) {
    term.addEventListener("pointerenter", function () { show(term); });
    term.addEventListener("pointerleave", function () { hide(term); });
    term.addEventListener("focus", function () { show(term); });
    term.addEventListener("blur", function () { hide(term); });
  });
  document.addEventListener("keydown", function (event) { if (event.key === "Escape") tip.hidden = true; });

  // Commands: a button that copies; without the permission it selects.
  document.querySelectorAll(".command button").forEach(function (button) {
    button.hidden = false;
    button.addEventListener("click", function () {
      var code = button.parentElement.querySelector("code");
      function done(word) { button.textContent = word; setTimeout(function () { button.textContent = "Copy"; }, 1500); }
      function select() { getSelection().selectAllChildren(code); done("Selected"); }
      if (navigator.clipboard) navigator.clipboard.writeText(code.textContent).then(function () { done("Copied"); }, select);
      else select();
    });
  });
})();
