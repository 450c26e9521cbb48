// The figures take their colours from the page's, and share one zoom that the buttons drive.
(function () {
  function ready(act) {
    var until = Date.now() + 20000;
    (function look() {
      if (Bokeh.documents.length && document.querySelector(".plot > div > *")) act(Bokeh.documents[0]);
      else if (Date.now() < until) setTimeout(look, 20);
    })();
  }
  function recolour(doc) {
    var style = getComputedStyle(document.documentElement);
    doc._all_models.forEach(function (model) {
      model.tags.forEach(function (tag) {
        var parts = String(tag).split("=");
        if (parts.length === 2) model[parts[0]] = style.getPropertyValue("--" + parts[1]).trim();
      });
    });
  }
  // Names stand where they have room: inside the visible part of their bar, and not over the mark before them.
  function fit(doc, plot) {
    var models = Array.from(doc._all_models.values()), range = plot.x_range;
    if (!(plot.inner_width > 0)) return;
    var scale = plot.inner_width / (range.end - range.start);
    function apart(marks) {
      var free = {};
      return marks.sort(function (one, other) { return one.x - other.x; }).map(function (mark) {
        var at = (mark.x - range.start) * scale, fits = !(at < free[mark.row]);
        if (fits) free[mark.row] = at + 8 * mark.text.length + 6;
        mark.fits = fits;
        return mark;
      });
    }
    models.forEach(function (model) {
      if (model.tags.includes("fit")) {
        var data = Object.assign({}, model.data), bars = Array.from(data.left).map(function (left, index) {
          return [Math.max(left, range.start), Math.min(data.right[index], range.end)];
        });
        data.middle = bars.map(function (bar) { return (bar[0] + bar[1]) / 2; });
        data.label = bars.map(function (bar, index) {
          return (bar[1] - bar[0]) * scale > 7.5 * data.name[index].length + 6 ? data.name[index] : "";
        });
        model.data = data;
      } else if (model.tags.includes("marks")) {
        var shown = Object.assign({}, model.data), label = Array.from(shown.mark);
        apart(Array.from(shown.left).map(function (left, index) {
          return { x: left, row: shown.y[index], text: shown.mark[index], index: index };
        })).forEach(function (mark) { if (!mark.fits) label[mark.index] = ""; });
        shown.label = label;
        model.data = shown;
      } else if (model.type === "Figure") {
        apart(model.center.filter(function (item) { return item.tags.includes("mark"); }).map(function (item) {
          return { x: item.x, row: item.y, text: item.text, item: item };
        })).forEach(function (mark) { if (mark.item.visible !== mark.fits) mark.item.visible = mark.fits; });
      }
    });
  }
  ready(function (doc) {
    recolour(doc);
    document.addEventListener("themechange", function () { recolour(doc); });
    document.documentElement.dataset.plots = "ready";
    var range = doc.get_model_by_name("run_time"), bar = document.querySelector(".zoom");
    if (!range || !bar) return;
    var waiting = false;
    function refit() {
      if (waiting) return;
      waiting = true;
      requestAnimationFrame(function () { waiting = false; fit(doc, plot); });
    }
    var plot = Array.from(doc._all_models.values()).find(function (model) {
      return model.type === "Figure" && model.x_range === range;
    });
    range.change.connect(refit);
    plot.properties.inner_width.change.connect(refit);
    refit();
    var whole = [range.start, range.end], shortest = (whole[1] - whole[0]) / 2000;
    // A finger scrolls the page; only a mouse drags out a zoom.
    if (matchMedia("(pointer: coarse)").matches) doc._all_models.forEach(function (model) {
      if (model.type === "BoxZoomTool") model.active = false;
    });
    function set(start, end) {
      var width = Math.min(Math.max(end - start, shortest), whole[1] - whole[0]);
      start = Math.min(Math.max(start, whole[0]), whole[1] - width);
      range.setv({ start: start, end: start + width });
    }
    function zoom(factor) {
      var middle = (range.start + range.end) / 2, half = (range.end - range.start) * factor / 2;
      set(middle - half, middle + half);
    }
    function pan(share) { var by = (range.end - range.start) * share; set(range.start + by, range.end + by); }
    var select = bar.querySelector("select");
    var acts = { "in": function () { zoom(0.5); }, out: function () { zoom(2); }, left: function () { pan(-0.4); },
      right: function () { pan(0.4); }, whole: function () { set(whole[0], whole[1]); select.value = ""; } };
    bar.querySelectorAll("button").forEach(function (button) { button.addEventListener("click", acts[button.dataset.act]); });
    select.addEventListener("change", function () {
      if (!select.value) return acts.whole();
      var span = select.value.split(" ").map(Number);
      set(span[0], span[1]);
    });
    document.querySelectorAll(".timed").forEach(function (plot) { plot.addEventListener("dblclick", acts.whole); });
    bar.hidden = false;
  });
})();
