"use strict";
// Every value is shown as text: nothing of status.json becomes markup.

const POLL_MS = 2000;
const SVG = "http://www.w3.org/2000/svg";
const STAGE_COLOURS = 7;
const byId = (id) => document.getElementById(id);

let report = null;      // the last answer
let chosen = null;      // the name of the pipeline whose details are shown
let answeredAt = 0;     // when the last answer came, on this machine's clock
let skewS = 0;          // how far this machine's clock is ahead of the server's
let failure = "";

// --- elements ---

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (typeof value === "function") element.addEventListener(name, value);
    else if (value !== null && value !== false) element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat().filter((one) => one !== null).map((one) => one instanceof Node ? one : String(one)));
  return element;
}
const h = (tag, attributes, ...children) => fill(document.createElement(tag), attributes, children);
const s = (tag, attributes, ...children) => fill(document.createElementNS(SVG, tag), attributes, children);
const focusable = (box) => [...box.querySelectorAll("button, [tabindex]")];

/** Replace the content of a section; keep the focus, how far it is scrolled, and selected text. */
function show(id, ...children) {
  const box = byId(id).querySelector("div"), selection = getSelection();
  if (!selection.isCollapsed && box.contains(selection.anchorNode)) return;
  const scrolled = [...box.querySelectorAll(".scroll")].map((one) => one.scrollLeft);
  const focused = focusable(box).indexOf(document.activeElement);
  box.replaceChildren(...children.filter((one) => one !== null));
  [...box.querySelectorAll(".scroll")].forEach((one, n) => { one.scrollLeft = scrolled[n] || 0; });
  if (focused >= 0 && focusable(box)[focused]) focusable(box)[focused].focus({preventScroll: true});
}

const none = (text) => h("p", {class: "dim"}, text);

function table(titles, rows) {
  const kind = (title) => title.startsWith("#") ? "number" : title.startsWith("~") ? "text" : null;
  const head = titles.map((title) => h("th", {class: kind(title) === "number" ? "number" : null, scope: "col"}, title.replace(/^[#~]/, "")));
  const body = rows.map((row) => h("tr", {}, row.map((cell, n) => h("td", {class: kind(titles[n])}, cell))));
  return h("div", {class: "scroll", tabindex: "0"}, h("table", {}, h("thead", {}, h("tr", {}, head)), h("tbody", {}, body)));
}

function facts(pairs) {
  return h("dl", {class: "facts"}, pairs.map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value))));
}

// --- values as text ---

const known = (value) => value !== null && value !== undefined;
const count = (value) => known(value) ? Math.round(value).toLocaleString("en") : "unknown";

function bytes(value) {
  if (!known(value)) return "";
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let n = 0;
  while (value >= 1024 && n < units.length - 1) { value /= 1024; n += 1; }
  return `${value.toFixed(n && value < 100 ? 1 : 0)} ${units[n]}`;
}

function duration(seconds) {
  if (!known(seconds)) return "unknown";
  if (seconds < 10) return `${seconds.toFixed(seconds < 1 ? 2 : 1)} s`;
  if (seconds < 120) return `${seconds.toFixed(0)} s`;
  if (seconds < 7200) return `${(seconds / 60).toFixed(0)} min`;
  if (seconds < 172800) return `${(seconds / 3600).toFixed(1)} h`;
  return `${(seconds / 86400).toFixed(1)} d`;
}

const clock = (at) => known(at) ? new Date(at * 1000).toISOString().slice(11, 19) : "";
const serverNow = () => Date.now() / 1000 - skewS;
const ago = (at) => known(at) ? `${duration(Math.max(0, serverNow() - at))} ago` : "never";
const badge = (state) => h("span", {class: `state ${/^[a-z]+$/.test(state) ? state : ""}`}, state);

// --- plots ---

const WIDTH = 460, HEIGHT = 90, TOP = 14, BOTTOM = 74;

function frame(label, largest, first, last, ...shapes) {
  return s("svg", {viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": label},
    s("line", {class: "axis", x1: 0, x2: WIDTH, y1: BOTTOM, y2: BOTTOM}), ...shapes,
    s("text", {x: 0, y: 10}, largest), s("text", {x: 0, y: HEIGHT - 4}, first),
    s("text", {x: WIDTH, y: HEIGHT - 4, "text-anchor": "end"}, last));
}

function linePlot(label, points, format) {
  const drawn = points.filter(([, value]) => known(value));
  if (drawn.length < 2) return null;
  const from = drawn[0][0], to = drawn[drawn.length - 1][0], top = Math.max(...drawn.map(([, value]) => value));
  const x = (at) => WIDTH * (at - from) / Math.max(to - from, 1e-9);
  const y = (value) => BOTTOM - (BOTTOM - TOP) * value / Math.max(top, 1e-9);
  const path = drawn.map(([at, value], n) => `${n ? "L" : "M"}${x(at).toFixed(1)} ${y(value).toFixed(1)}`).join("");
  return frame(label, `${label}, at most ${format(top)}`, clock(from), clock(to), s("path", {class: "line", d: path}));
}

function barPlot(label, stacks, format, first, last) {
  if (!stacks.length) return null;
  const top = Math.max(...stacks.map((one) => one.parts.reduce((sum, [, value]) => sum + value, 0)));
  const step = Math.min(WIDTH / stacks.length, 40), scale = (BOTTOM - TOP) / Math.max(top, 1e-9);
  const bars = stacks.map((one, n) => {
    let y = BOTTOM;
    return s("g", {}, s("title", {}, one.title), one.parts.map(([colour, value]) => {
      const height = value * scale;
      y -= height;
      return s("rect", {class: colour, x: (n * step).toFixed(1), y: y.toFixed(2), width: Math.max(step - 1, 0.8).toFixed(1), height: height.toFixed(2)});
    }));
  });
  return frame(label, `${label}, at most ${format(top)}`, first, last, ...bars);
}

// --- sections ---

function showPipelines() {
  const several = report.pipelines.length > 1;
  byId("pipelines").hidden = !several;
  if (!several) return;
  show("pipelines", table(["pipeline", "state", "#behind", "#lag", "#records/s", "#rejects", "last commit", "~reason"],
    report.pipelines.map((one) => [
      h("button", {class: "link", "aria-current": String(one.name === chosen), click: () => choose(one.name)}, one.name),
      badge(one.state), count(one.lag_records), duration(one.lag_s), count(one.records_per_s), count(one.rejects),
      ago(one.last_commit_at), one.reason])));
}

function showState(pipeline) {
  showActions(pipeline);
  const batch = pipeline.details.batch_in_progress, service = pipeline.details.background_service;
  show("state",
    h("p", {}, badge(pipeline.state), " ", h("strong", {}, pipeline.name), " ", h("span", {class: "dim"}, `${pipeline.source} → ${pipeline.table}`)),
    h("p", {}, pipeline.reason),
    facts([
      ["behind", known(pipeline.lag_records) ? `${count(pipeline.lag_records)} records` : "unknown"], ["oldest unread record", duration(pipeline.lag_s)],
      ["last minute", `${count(pipeline.records_per_s)} records/s`], ["last commit", ago(pipeline.last_commit_at)],
      ["batch in progress", batch ? `${count(batch.records)} records, since ${duration(serverNow() - batch.planned_at)}` : "none"],
      ["service in progress", service ? `${service.service}: ${count(service.file_groups)} file groups, since ${duration(serverNow() - service.started_at)}` : "none"],
      ["batches", count(pipeline.batches)], ["records", count(pipeline.records)],
      ["rows", count(pipeline.rows)], ["rejects", count(pipeline.rejects)]]));
}

function showLag(details) {
  const history = details.lag_history, lag = details.lag;
  const more = lag.num_partitions - lag.partitions.length;
  show("lag",
    linePlot("unread records", history.map((one) => [one.at, one.records]), count),
    linePlot("age of the oldest unread record", history.map((one) => [one.at, one.seconds]), duration),
    lag.partitions.length ? table(["partition", "#next offset", "#unread records", "#lag"],
      lag.partitions.map((one) => [one.partition, known(one.next_offset) ? one.next_offset : "", count(one.records), duration(one.seconds)])) : none("The lag of this source is not known."),
    more > 0 ? none(`${count(more)} further partitions are less behind.`) : null,
    known(lag.seen_at) ? none(`Read from Kafka ${ago(lag.seen_at)}.`) : null);
}

function showBatches(details) {
  const batches = details.batches;
  if (!batches.length) return show("batches", none("This process has written no batch."));
  const stages = [...new Set(batches.flatMap((one) => one.stages.map((stage) => stage.stage)))];
  const colour = (stage) => `s${stages.indexOf(stage) % STAGE_COLOURS}`;
  const stacks = batches.map((one) => ({
    title: `batch ${one.id}: ${one.stages.map((stage) => `${stage.stage} ${duration(stage.seconds)}`).join(", ")}`,
    parts: one.stages.map((stage) => [colour(stage.stage), stage.seconds])}));
  const seconds = (batch, name) => { const found = batch.stages.find((one) => one.stage === name); return found ? duration(found.seconds) : ""; };
  show("batches",
    barPlot("seconds of stages", stacks, duration, clock(batches[0].at), clock(batches[batches.length - 1].at)),
    h("div", {class: "legend"}, stages.map((one) => h("span", {}, s("svg", {viewBox: "0 0 10 10", "aria-hidden": "true"}, s("rect", {class: colour(one), width: 10, height: 10})), one))),
    table(["batch", "at", "#records", "#rows", "#rejects", "#size", "#seconds", ...stages.map((one) => `#${one}`), "instant"],
      batches.slice(-12).reverse().map((one) => [one.id, clock(one.at), count(one.records), count(one.rows), count(one.rejects),
        bytes(one.bytes), duration(one.seconds), ...stages.map((stage) => seconds(one, stage)), one.instant || "none"])));
}

function showThroughput(details) {
  const intervals = details.throughput;
  if (!intervals.length) return show("throughput", none("This process has written no batch."));
  const first = intervals[0].at, last = intervals[intervals.length - 1].at;
  const found = new Map(intervals.map((one) => [one.at, one]));
  const all = [];
  for (let at = Math.max(first, last - 1790); at <= last; at += 10) all.push(found.get(at) || {at, records: 0, rows: 0, bytes: 0});
  const plot = (label, name, format) => barPlot(label, all.map((one) => ({title: `${clock(one.at)}: ${format(one[name])}`, parts: [["bar", one[name]]]})), format, clock(all[0].at), clock(last));
  show("throughput", plot("records in 10 s", "records", count), plot("bytes written in 10 s", "bytes", bytes));
}

function showNotes(details) {
  const notes = details.notes.slice().reverse();
  show("notes", notes.length ? table(["at", "level", "~event"], notes.map((one) => [
    `${clock(one.at)} (${ago(one.at)})`, h("span", {class: /^[a-z]+$/.test(one.level) ? one.level : null}, one.level), one.text])) : none("Nothing."));
}

function showRejects(details) {
  const rejects = details.rejects;
  show("rejects",
    rejects.codes.length ? table(["reason", "#records", "last", "~newest batch's first record"],
      rejects.codes.map((one) => [one.code, count(one.count), ago(one.at), one.sample])) : none("This process has rejected no record."),
    rejects.dead_letters ? none(`Dead letters: ${rejects.dead_letters}`) : null);
}

function showServices(details) {
  const pending = details.tables.flatMap((one) => (one.pending_services || []).map((service) => `${one.name}: ${service.count} × ${service.action}`));
  const services = details.services.slice().reverse();
  show("services",
    h("p", {}, pending.length ? `Pending: ${pending.join(", ")}` : "No service is pending."),
    services.length ? table(["at", "service", "#seconds", "~result"], services.map((one) => [clock(one.at), one.service, duration(one.seconds), one.text])) : none("No service has run in this process."));
}

function showTable(one) {
  const sizes = [...new Set((one.files || []).map((file) => file.size))];
  const number = (kind, size) => { const file = one.files.find((found) => found.kind === kind && found.size === size); return file ? count(file.count) : ""; };
  const instants = (found) => table(["instant", "action", "state", "requested", "#took"], found.slice().reverse().map((instant) => [
    instant.instant, instant.action, h("span", {class: /^[a-z]+$/.test(instant.state) ? instant.state : null}, instant.state), ago(instant.requested_at),
    known(instant.completed_at) && known(instant.requested_at) ? duration(instant.completed_at - instant.requested_at) : ""]));
  return h("div", {},
    h("h3", {}, `${one.name}: ${one.url}`),
    facts([["type", `${one.type}, version ${one.version}`], ["file groups", count(one.file_groups)], ["base files", bytes(one.base_bytes)],
      ["log files", `${count(one.log_files)}, ${bytes(one.log_bytes)}`], ["delta commits not compacted", count(one.uncompacted_delta_commits)], ["active instants", count(one.active_instants)]]),
    sizes.length ? table(["files of at most", ...sizes.map((size) => `#${size}`)], ["base", "log"].map((kind) => [kind, ...sizes.map((size) => number(kind, size))])) : null,
    one.pending_instants && one.pending_instants.length ? h("h3", {}, "Pending instants") : null,
    one.pending_instants && one.pending_instants.length ? instants(one.pending_instants) : null,
    h("h3", {}, "Newest instants"), one.instants && one.instants.length ? instants(one.instants) : none("The timeline has no instant."),
    one.largest_slices.length ? h("h3", {}, "File slices with the largest logs") : null,
    one.largest_slices.length ? table(["~partition", "file group", "#base file", "#logs", "#size of logs"], one.largest_slices.map((slice) => [
      slice.partition || "(no partition)", slice.file_group, known(slice.base_bytes) ? bytes(slice.base_bytes) : "none", count(slice.log_files), bytes(slice.log_bytes)])) : null);
}

function showDetails(pipeline) {
  const details = pipeline.details;
  showState(pipeline);
  showLag(details);
  showBatches(details);
  showThroughput(details);
  showNotes(details);
  showRejects(details);
  showServices(details);
  show("tables", ...(details.tables.length ? details.tables.map(showTable) : [none("No table is open.")]));
  show("columns", details.columns.length ? table(["column", "~type"], details.columns.map((one) => [one.name, one.type])) : none("No table is open."));
  show("settings", h("pre", {}, JSON.stringify(details.settings, null, 2)));
}

// --- actions ---

const QUESTIONS = {stop: (name) => `Stop ${name}? Only a restart of its process starts it again.`};

function showActions(pipeline) {
  byId("actions").hidden = !report.accepts_actions;
  const shown = JSON.stringify([pipeline.name, pipeline.actions]);
  if (byId("buttons").dataset.shown === shown) return;
  byId("buttons").dataset.shown = shown;
  byId("buttons").replaceChildren(...pipeline.actions.map((one) => h("button", {type: "button", value: one, click: () => act(pipeline.name, one)}, one)));
}

/**
 * Ask for an action on the pipeline that is shown, which is not the chosen one until it is answered.
 * The token is in the field only: neither a cookie nor a storage has it.
 */
async function act(name, action) {
  if (QUESTIONS[action] && !confirm(QUESTIONS[action](name))) return;
  try {
    const answer = await fetch(`pipelines/${encodeURIComponent(name)}/${encodeURIComponent(action)}`, {
      method: "POST", headers: {Authorization: `Bearer ${byId("token").value}`}, signal: AbortSignal.timeout(10000)});
    byId("outcome").textContent = `${name}: ${await answer.text()}`;
  } catch (error) {
    byId("outcome").textContent = `${name}: no answer: ${error.message}`;
  }
  ask();
}

// --- polling ---

function showAnswer() {
  byId("process").textContent = `${report.version}, up ${duration(report.at - report.started_at)}`;
  showPipelines();
  const pipeline = report.pipelines.find((one) => one.name === chosen);
  if (pipeline && pipeline.details) showDetails(pipeline);
  document.title = pipeline ? `${pipeline.state}: ${pipeline.name}` : "lakemark";
}

function showFreshness() {
  byId("updated").textContent = answeredAt ? `updated ${duration((Date.now() - answeredAt) / 1000)} ago` : "";
  byId("problem").hidden = !failure;
  byId("problem").textContent = failure ? `${failure}. The page shows the last answer, and asks again.` : "";
}

async function ask() {
  try {
    const answer = await fetch(`status.json?pipeline=${encodeURIComponent(chosen || "")}`, {cache: "no-store", signal: AbortSignal.timeout(10000)});
    if (!answer.ok) throw new Error(`the process answers ${answer.status}`);
    report = await answer.json();
    answeredAt = Date.now();
    skewS = answeredAt / 1000 - report.at;
    failure = "";
    if (!report.pipelines.some((one) => one.name === chosen) && report.pipelines.length) {
      chosen = report.pipelines[0].name;
      return ask();
    }
    showAnswer();
  } catch (error) {
    failure = `No answer: ${error.message}`;
  }
  showFreshness();
}

function choose(name) {
  chosen = name;
  location.hash = encodeURIComponent(name);
  ask();
}

async function poll() {
  if (!document.hidden) await ask();
  setTimeout(poll, POLL_MS);
}

try { chosen = decodeURIComponent(location.hash.slice(1)) || null; } catch { chosen = null; }
byId("actions").addEventListener("submit", (event) => event.preventDefault());
setInterval(showFreshness, 1000);
document.addEventListener("visibilitychange", () => { if (!document.hidden) ask(); });
poll();
