// The run that goes on: the server sends its whole state whenever it changes. Everything is written as text, never HTML.
(function () {
  var byId = function (id) { return document.getElementById(id); };
  var number = new Intl.NumberFormat("en");
  var was = null, server = null;

  function item(text, state, chip, tone) {
    var li = document.createElement("li");
    if (state) li.dataset.state = state;
    if (chip) {
      var mark = document.createElement("span");
      mark.className = "chip " + (tone || "neutral"); mark.textContent = chip;
      li.append(mark, " ");
    }
    li.append(text);
    return li;
  }
  function fill(id, items, empty) { byId(id).replaceChildren.apply(byId(id), items.length ? items : [item(empty || "")]); }
  function seconds(value) { return value === null || value === undefined ? "–" : value.toFixed(1) + " s"; }
  function set(id, text) { if (byId(id).textContent !== text) byId(id).textContent = text; }

  var tones = { active: "good", passive: "neutral", syncing: "doubt", starting: "doubt", silent: "doubt", down: "bad", failed: "bad" };
  var signs = { good: "✓", bad: "✗", none: "…" };
  var marks = { done: "✓ ", now: "▶ ", next: "" };

  function draw(points) {
    var high = Math.max.apply(null, [1].concat(points.map(function (p) { return Math.max(p[1], p[2]); })));
    var last = points.length ? points[points.length - 1][0] : 0;
    function line(index) {
      return points.map(function (p) { return (600 - (last - p[0]) * 5).toFixed(1) + "," + (147 - p[index] / high * 140).toFixed(1); }).join(" ");
    }
    document.querySelector("#flow .sent").setAttribute("points", line(1));
    document.querySelector("#flow .got").setAttribute("points", line(2));
    set("peak", "at most " + number.format(Math.round(high)) + " a second;");
  }

  function show(state) {
    byId("live").dataset.state = !state ? "none" : state.phase === "drilling" ? "drilling" : "other";
    byId("going").hidden = !state;
    if (!state) {
      set("headline", "No drill goes on");
      set("about", was ? "The run " + was + " has ended. Reload the page for its verdict." : "The page shows the next one by itself.");
      document.title = "Game day";
      return;
    }
    was = state.run;
    if (state.unreadable) {
      byId("going").hidden = true;
      set("headline", state.run);
      set("about", state.unreadable);
      return;
    }
    set("headline", state.title);
    set("about", state.drill + " on " + state.topology + ": " + state.phase);
    document.title = state.phase + ": " + state.drill;
    set("time", seconds(state.t_s));
    set("acknowledged", number.format(state.acknowledged)); set("received", number.format(state.received));
    set("unanswered", number.format(state.unanswered.sends) + " sends, " + number.format(state.unanswered.receipts) + " receipts");
    set("gap", seconds(state.gap_s));
    set("behind", seconds(state.behind_s));
    fill("roles", state.roles.map(function (one) { return item(one.name, "", one.role, tones[one.role]); }), "not known yet");
    fill("faults", state.faults.map(function (one) {
      var left = one.left_s === null ? "being injected" : "for " + seconds(one.for_s) + ", its host heals it in " + seconds(one.left_s);
      if (one.armed) return item(one.target + ", " + left, "", "armed", "neutral");
      return item(one.fault + " " + one.target + ", " + left, "", one.name, "bad");
    }), "none");
    fill("steps", state.steps.map(function (one) { return item(marks[one.state] + one.name + ": " + one.what, one.state); }));
    fill("promises", state.promises.map(function (one) { return item(one.name + ": " + one.said, "", signs[one.tone], one.tone === "none" ? "neutral" : one.tone); }));
    fill("events", state.events.slice().reverse().map(function (one) { return item(seconds(one.t_s) + "  " + one.text); }), "nothing yet");
    draw(state.points);
  }

  function connect() {
    server = new EventSource("events");
    server.onmessage = function (message) { byId("about").classList.remove("lost"); show(JSON.parse(message.data)); };
    server.onerror = function () { byId("about").classList.add("lost"); set("about", "The server does not answer; trying again."); };
  }
  addEventListener("pagehide", function () { if (server) server.close(); });
  connect();

  var form = byId("abort");
  if (form) form.addEventListener("submit", function (event) {
    event.preventDefault();
    set("answer", "asking…");
    fetch("abort", { method: "POST", headers: { Authorization: "Bearer " + byId("token").value } })
      .then(function (answer) { return answer.json().then(function (body) { set("answer", answer.ok ? "It heals and ends." : body.error); }); })
      .catch(function () { set("answer", "The server does not answer."); });
  });
})();
