// Draws the page from overview.json, which it asks for every two seconds while the page can be seen.
// Texts come from files and errors of strangers: they go into the page as text nodes and attributes, never as markup.

const POLL_MS = 2000, WAIT_MS = 10000;
const LEAST_POINTS = 7; // of a plot over time: a minute of the finest
const MARKS = { ready: "✓ ready", "in time": "→ in time", late: "! late", unknown: "? not known" };
let look = null, tag = "", timer = 0, asking = false, failures = 0;

// Words ---------------------------------------------------------------------------------------------------------------

const count = (n) => n.toLocaleString("en");
const many = (n, word, words = word + "s") => `${count(n)} ${n === 1 ? word : words}`;
const percent = (part) => `${part > 0 && part < 0.095 ? (100 * part).toFixed(1) : Math.round(100 * part)} %`;
const clock = (seconds) => new Date(seconds * 1000).toLocaleTimeString("en-GB");

function size(bytes) {
  const units = ["B", "kB", "MB", "GB", "TB"];
  let unit = 0;
  while (Math.abs(bytes) >= 999.5 && unit < units.length - 1) { bytes /= 1000; unit += 1; }
  return `${unit && bytes < 100 ? Number(bytes.toPrecision(3)) : Math.round(bytes)} ${units[unit]}`;
}

function duration(seconds) {
  if (seconds < 9.95) return `${Number(seconds.toPrecision(2))} s`;
  const whole = Math.round(seconds);
  if (whole < 100) return `${whole} s`;
  if (whole < 3600) return `${Math.floor(whole / 60)} min ${whole % 60} s`;
  const minutes = Math.round(seconds / 60);
  if (minutes < 2880) return `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
  return `${Math.floor(minutes / 1440)} d ${Math.floor((minutes % 1440) / 60)} h`;
}

function moment(seconds) {
  const date = new Date(seconds * 1000);
  const day = date.toDateString() === new Date().toDateString() ? "" : `${date.toLocaleDateString("en-GB")} `;
  return day + clock(seconds);
}

// Elements ------------------------------------------------------------------------------------------------------------

function el(name, attributes = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key === "onclick") element.addEventListener("click", value);
    else if (value !== null && value !== false) element.setAttribute(key, value === true ? "" : String(value));
  }
  element.append(...children.filter((child) => child !== null && child !== ""));
  return element;
}

// Puts new content into a section; what had the focus has it again.
function put(id, ...children) {
  const part = document.querySelector(`#${id} [data-part]`);
  const key = part.contains(document.activeElement) ? document.activeElement.dataset.key : null;
  const open = new Set([...part.querySelectorAll("details[open]")].map((each) => each.dataset.key));
  part.replaceChildren(...children);
  for (const each of part.querySelectorAll("details")) each.open = open.has(each.dataset.key);
  if (key) part.querySelector(`[data-key="${CSS.escape(key)}"]`)?.focus({ preventScroll: true });
}

// A table whose rows become blocks on a narrow screen, unless it is a narrow one. Heads that begin with # are of numbers,
// those with ~ of long texts.
const KINDS = { "#": "number", "~": "long" };

function table(name, heads, rows, narrow = false) {
  const plain = heads.map((head) => head.replace(/^[#~]/, ""));
  const cell = (content, at) => {
    const empty = content === null || content === "";
    const kind = [KINDS[heads[at][0]] ?? "", empty ? "empty" : ""].join(" ").trim();
    const attributes = { class: kind || null, "data-head": at ? plain[at] : null, role: at ? "cell" : "rowheader" };
    if (!at) attributes.scope = "row";
    return el(at ? "td" : "th", attributes, empty ? "" : content);
  };
  const head = plain.map((text, at) =>
    el("th", { scope: "col", role: "columnheader", class: heads[at][0] === "#" ? "number" : null }, text));
  return el("table", { class: narrow ? null : "stack", role: "table", "aria-label": name },
    el("thead", { role: "rowgroup" }, el("tr", { role: "row" }, ...head)),
    el("tbody", { role: "rowgroup" }, ...rows.map((row) => el("tr", { role: "row" }, ...row.map(cell)))));
}

const none = (words) => el("p", { class: "note" }, words);

function meter(name, part, words) {
  const bar = el("span");
  bar.style.width = `${Math.max(0, Math.min(100, 100 * part))}%`;
  const attributes = { class: "meter", role: "meter", "aria-label": name, "aria-valuemin": 0, "aria-valuemax": 100,
    "aria-valuenow": Math.round(100 * part), "aria-valuetext": words };
  return el("div", {}, el("span", attributes, bar), words);
}

// Parts ---------------------------------------------------------------------------------------------------------------

function drawHead({ overview, problem, version }) {
  document.getElementById("store").textContent = overview.store;
  document.title = `${overview.store.split("/").pop()} · viewcache`;
  const who = overview.source === "file" ? "no process has the cache open"
    : overview.source === "postgresql" ? "live from PostgreSQL"
    : `${overview.service ? "served" : "owned"} by process ${overview.owner || "unknown"}`;
  document.getElementById("seen").textContent = `As of ${moment(overview.as_of_s)}, ${who}. viewcache ${version}.`;
  const missing = Object.entries(overview.missing).map(([part, why]) => `${part} cannot be shown: ${why}`);
  complain([problem, ...missing].filter(Boolean).join(" "));
}

function complain(words) {
  const place = document.getElementById("problem");
  place.hidden = !words;
  if (place.textContent !== words) place.textContent = words;
}

function drawTasks({ overview, causes }) {
  const rows = overview.tasks.map((task) => {
    const within = task.iterations ? Math.min(task.iteration / task.iterations, 1) : 0;
    const share = task.epochs ? Math.min((task.epoch + within) / task.epochs, 1) : 0;
    const place = !task.places.length ? "not read yet"
      : task.epoch >= task.epochs ? `all ${task.epochs} epochs read`
      : `epoch ${task.epoch} of ${task.epochs}, batch ${task.iteration}${task.iterations ? ` of ${task.iterations}` : ""}`;
    const asked = task.hits + task.misses;
    const waits = task.waits.map((wait) => el("li", {}, `${causes[wait.cause] ?? wait.cause}: ${duration(wait.seconds)}`));
    const reading = task.reading_share === null ? null : el("div", {}, percent(task.reading_share),
      el("details", { "data-key": `waits ${task.task}` }, el("summary", { "data-key": `sum ${task.task}` }, "in all, by cause"), el("ul", {}, ...waits)));
    const readers = task.places.length > 1 ? el("details", { "data-key": `places ${task.task}` },
      el("summary", { "data-key": `psum ${task.task}` }, many(task.places.length, "reader")),
      el("ul", {}, ...task.places.map((each) => el("li", {}, readerWords(each)))))
      : task.places.length ? readerWords(task.places[0]) : null;
    return [task.task, meter(`progress of ${task.task}`, share, place),
      `${count(task.ready_to_come)} of ${count(task.clips_to_come)}`, reading,
      asked ? `${percent(task.hits / asked)} of ${count(asked)}` : null, readers];
  });
  put("tasks", rows.length ? table("tasks", ["task", "progress", "clips to come that are ready", "time in reads, last minute",
    "clips that were there", "~readers"], rows) : none("No task has been described yet."));
}

function readerWords(place) {
  const part = place.part ? `, worker ${place.part}` : "";
  const pace = place.pace_s ? `, ${duration(place.pace_s)} a batch` : "";
  const seen = place.seen_s ? `, read last at ${moment(place.seen_s)}` : "";
  return `rank ${place.rank}${part}: next ${place.epoch}/${place.iteration}${pace}${seen}`;
}

function drawDue({ overview }) {
  const { pace } = overview;
  document.getElementById("pace").textContent = overview.source === "file"
    ? "No process has the cache open: what is missing is made when it is read."
    : pace.objects_per_s === null ? "How fast objects are made is not known yet."
    : pace.measured ? `${Number(pace.objects_per_s.toPrecision(2))} objects a second were made in the last half minute.`
    : `Nothing was made in the last half minute; by what objects have cost, ${Number(pace.objects_per_s.toPrecision(2))} a second can be.`;
  if (!overview.counts_memory) document.getElementById("pace").textContent +=
    " Clips that are ready in the memory of the owner are not counted: no service tells of them.";
  const rows = overview.due.map((batch) => {
    const path = `${batch.task}/${batch.epoch}/${batch.iteration}`;
    const button = el("button", { type: "button", class: "link", "data-key": path, title: "look into this batch",
      onclick: () => show(batch.task, batch.epoch, batch.iteration, true) }, path);
    const due = batch.due_s !== null ? `in ${duration(batch.due_s)}` : batch.ahead ? `after ${many(batch.ahead, "batch", "batches")}` : "next";
    const late = batch.verdict === "late" ? ` by ${duration(batch.ready_s - batch.due_s)}` : "";
    const kind = batch.verdict === "late" ? "bad" : batch.verdict === "ready" ? "good" : null;
    const words = MARKS[batch.verdict] + late + (batch.drawn ? "" : ", order not drawn yet");
    return [button, due, `${batch.ready} of ${batch.clips}`, el("span", { class: kind }, words)];
  });
  put("due", rows.length ? table("batches that are due next", ["~batch", "due", "clips ready", "will it be late?"], rows, true)
    : none("Nothing is planned that has not been read."));
}

function drawTiers({ overview }) {
  put("tiers", overview.tiers.length ? table("tiers", ["tier", "used of the budget", "#objects", "~where"], overview.tiers.map((tier) => [
    tier.tier, tier.budget_bytes ? meter(`${tier.tier} tier`, tier.used_bytes / tier.budget_bytes,
      `${size(tier.used_bytes)} of ${size(tier.budget_bytes)}, ${percent(tier.used_bytes / tier.budget_bytes)}`) : size(tier.used_bytes),
    count(tier.copies), tier.url]).concat(overview.passed.made ? [["memory, read once",
    `${count(overview.passed.read)} objects passed, ${size(overview.passed.bytes)}`, "", ""]] : [])) : none("No tier is known yet."));
}

function drawObjects({ overview }) {
  put("objects", overview.objects.length ? table("objects by kind and state", ["kind", "state", "#objects", "#bytes"],
    overview.objects.map((each) => [each.kind, each.state, count(each.objects), each.bytes ? size(each.bytes) : ""]), true)
    : none("Nothing is planned yet."));
}

function drawEvictions({ overview }) {
  put("evictions", overview.evictions.length ? table("evictions by reason",
    ["reason", "~why", "policy", "tier", "#objects", "#bytes", "last"], overview.evictions.map((each) => [
      each.reason, each.detail, each.policy, each.tier, count(each.objects), size(each.bytes), moment(each.last_s)]))
    : none("Nothing has been evicted."));
}

const pictures = new Map();

function picture(video) {
  if (!pictures.has(video.video_id)) {
    const frame = el("div", { class: "frame" });
    const image = el("img", { loading: "lazy", alt: `first frame that can be decoded of ${video.video}` });
    image.addEventListener("error", () => frame.replaceChildren(el("div", { class: "none" }, "no frame of it can be decoded")));
    image.src = `video.jpg?id=${video.video_id}`;
    frame.append(image);
    pictures.set(video.video_id, frame);
  }
  return pictures.get(video.video_id);
}

function drawVideos({ overview }) {
  const cards = overview.videos.map((video) => el("article", { class: "card" }, picture(video), el("div", {},
    el("h3", {}, video.video), el("p", {}, video.message),
    el("p", { class: "note" }, video.uses ? `${video.policies}: ${many(video.uses, "time")}, ${video.tasks}` : "It has not come up since."))));
  put("videos", cards.length ? el("div", { class: "cards" }, ...cards) : none("No video has failed."));
}

function drawFailures({ overview }) {
  put("failures", overview.failures.length ? table("other errors", ["of", "~what", "#times", "first", "last"],
    overview.failures.map((each) => [`${each.about} ${each.name}`, each.message, count(each.count), moment(each.first_s), moment(each.last_s)]))
    : none("Nothing else has gone wrong."));
}

function drawClients({ overview }) {
  const { service } = overview;
  if (!service) {
    put("clients", none(overview.source === "file" ? "No process has the cache open."
      : `Process ${overview.owner || "unknown"} owns the cache; no service runs.`));
    return;
  }
  const rows = service.clients.map((client) => [
    `${client.pid}`, client.program + (client.job ? `, job ${client.job}` : ""), moment(client.since), count(client.held),
    client.seats.map((seat) => `${seat.task} ${seat.epoch}/${seat.iteration} as rank ${seat.rank} of ${seat.world}`
      + (seat.parts > 1 ? `, worker ${seat.part} of ${seat.parts}` : "")).join("; ")]);
  put("clients", el("p", {}, `The service is process ${service.pid}, since ${moment(service.since)}; it and its workers took ${duration(service.cpu_s)} of CPU.`),
    rows.length ? table("clients of the service", ["process", "program", "since", "#objects held", "~reads next"], rows)
      : none("No process uses it; this page does not count as one."));
}

// Plots ---------------------------------------------------------------------------------------------------------------

const SVG = "http://www.w3.org/2000/svg";

function svg(name, attributes, text = "") {
  const element = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  if (text) element.textContent = text;
  return element;
}

// series: [{name, points: [[seconds, value]…]}, …]; most: least upper end of the axis; words: value → text.
function plot(title, series, words, most = 0) {
  const width = document.querySelector("#history .plots").clientWidth || 640;
  const columns = Math.max(1, Math.floor((width + 16) / (22 * 16 + 16))); // as style.css places them
  const across = Math.floor((width - 16 * (columns - 1)) / columns);
  const high = 150, left = 8, right = across - 8, top = 16, bottom = high - 18;
  const times = series[0].points.map((point) => point[0]);
  const first = times[0], last = times[times.length - 1];
  const peak = Math.max(most, 1e-9, ...series.flatMap((each) => each.points.map((point) => point[1])));
  const x = (at) => left + (last > first ? (at - first) / (last - first) : 1) * (right - left);
  const y = (value) => bottom - (value / peak) * (bottom - top);
  const latest = series.map((each) => `${each.name} ${words(each.points[each.points.length - 1][1])}`).join(", ");
  const image = svg("svg", { width: across, height: high, role: "img", tabindex: 0, "data-key": title,
    "aria-label": `${title}, ${clock(first)} to ${clock(last)}. Last: ${latest}. Peak ${words(peak)}. Arrow keys read single values.` });
  image.append(svg("line", { class: "axis", x1: left, x2: right, y1: bottom, y2: bottom }),
    svg("line", { class: "axis", x1: left, x2: right, y1: top, y2: top }),
    svg("text", { x: left, y: top - 4 }, words(peak)), svg("text", { x: left, y: high - 4 }, clock(first)),
    svg("text", { x: right, y: high - 4, "text-anchor": "end" }, clock(last)));
  series.forEach((each, at) => image.append(svg("path", { class: `s${at}`,
    d: each.points.map(([when, value], k) => `${k ? "L" : "M"}${x(when).toFixed(1)} ${y(value).toFixed(1)}`).join("") })));
  const cursor = svg("line", { class: "cursor", y1: top, y2: bottom, visibility: "hidden" });
  image.append(cursor);
  const reads = el("p", { class: "reads", "aria-live": "polite" });
  let at = times.length - 1;
  const read = (to) => {
    at = Math.max(0, Math.min(times.length - 1, to));
    cursor.setAttribute("x1", x(times[at]));
    cursor.setAttribute("x2", x(times[at]));
    cursor.setAttribute("visibility", "visible");
    reads.textContent = `${clock(times[at])}: ${series.map((each) => `${each.name} ${words(each.points[at][1])}`).join(", ")}`;
  };
  image.addEventListener("pointermove", (event) => {
    const box = image.getBoundingClientRect();
    const when = first + (event.clientX - box.left - left) / (right - left) * (last - first);
    read(times.reduce((best, each, k) => (Math.abs(each - when) < Math.abs(times[best] - when) ? k : best), 0));
  });
  image.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1, Home: -times.length, End: times.length }[event.key];
    if (step) { event.preventDefault(); read(at + step); }
  });
  const legend = el("p", { class: "legend" }, ...series.map((each, k) => el("span", {}, el("span", { class: `key s${k}` }), ` ${each.name}`)));
  return el("div", { class: "plot" }, el("h3", {}, title), image, legend, reads);
}

// The step before the first in which anything happened: a short run is not drawn as the sliver of a long plot.
function firstStep(span) {
  const all = [span.hits, span.misses, span.waited_s, span.loaded_s, span.evicted_bytes];
  const begun = span.hits.findIndex((_, k) => all.some((values) => values[k] > 0));
  return Math.max(0, Math.min(begun - 1, span.hits.length - LEAST_POINTS));
}

function drawHistory({ overview, samples }) {
  const wanted = Number(document.querySelector("input[name=span]:checked").value);
  const span = overview.spans.find((each) => each.span_s === wanted);
  const plots = [];
  if (span) {
    const at = (k) => span.end_s - (span.hits.length - 1 - k) * span.step_s;
    const begin = firstStep(span);
    const series = (name, values, by) => ({ name, points: values.map((value, k) => [at(k), value * by]).slice(begin) });
    const rate = (value) => `${Number(value.toPrecision(2))}/s`;
    const per = 1 / span.step_s;
    plots.push(
      plot("Clips read", [series("there", span.hits, per), series("not there", span.misses, per)], rate),
      plot("Time in reads, all readers, seconds per second", [series("waiting", span.waited_s, per), series("loading", span.loaded_s, per)],
        (value) => `${Number(value.toPrecision(2))} s`),
      plot("Evicted", [series("bytes", span.evicted_bytes, per)], (value) => `${size(value)}/s`));
  }
  if (samples.length > 1) {
    const budget = overview.tiers.reduce((sum, tier) => sum + tier.budget_bytes, 0);
    plots.push(plot("Stored, all tiers, since this page was started", [
      { name: "used", points: samples.map((each) => [each.at_s, each.used_bytes]) },
      { name: "budget", points: samples.map((each) => [each.at_s, budget]) }], size));
  }
  put("history", ...(plots.length ? plots : [none("Nothing has been read yet.")]));
}

// A batch -------------------------------------------------------------------------------------------------------------

const which = document.getElementById("which");
const makeButton = document.getElementById("make");
let shown = 0;

function drawChoice({ overview }) {
  const names = overview.tasks.map((task) => task.task);
  const select = which.elements.task;
  if (names.join("\n") !== [...select.options].map((option) => option.value).join("\n")) {
    const before = select.value;
    select.replaceChildren(...names.map((name) => el("option", { value: name }, name)));
    if (names.includes(before)) select.value = before;
  }
}

async function show(task, epoch, iteration, jump = false) {
  which.elements.task.value = task;
  which.elements.epoch.value = epoch;
  which.elements.iteration.value = iteration;
  const mine = shown += 1;
  const says = document.getElementById("batch-says");
  makeButton.hidden = true;
  says.textContent = "Looking…";
  if (jump) document.getElementById("batch").scrollIntoView();
  const place = new URLSearchParams({ task, epoch, iteration });
  const { answer, error } = await ask(`batch.json?${place}`);
  if (mine !== shown) return;
  if (error) {
    says.textContent = error;
    put("batch");
    return;
  }
  const missing = answer.clips.filter((clip) => !clip.is_stored).length;
  says.textContent = `view://${task}/${epoch}/${iteration}/view: ${many(answer.clips.length, answer.clips[0].is_image ? "image" : "clip")}, `
    + (missing ? `${missing} of them not stored in the folder.` : "all stored.");
  const figures = answer.clips.map((clip, k) => clipFigure(clip, `${place}&clip=${k}`, k));
  put("batch", ...figures.map((each) => each.figure));
  makeButton.hidden = !missing;
  makeButton.onclick = async () => {
    makeButton.hidden = true;
    says.textContent = "The service decodes and makes the missing clips, for this look alone; no reader is moved.";
    for (const each of figures) if (!each.clip.is_stored && mine === shown) await each.make();
    if (mine !== shown) return;
    says.textContent = "The missing clips were made.";
    const { answer: now } = await ask(`batch.json?${place}`);
    if (now && mine === shown) now.clips.forEach((clip, k) => figures[k]?.tell(clip));
  };
}

function clipFigure(clip, place, number) {
  const strip = el("div", { class: "strip", tabindex: 0, role: "group", "aria-label": `frames of ${clip.is_image ? "image" : "clip"} ${number}` });
  const range = clip.is_image ? "" : clip.frames.length ? `frames ${clip.frames[0]} to ${clip.frames[clip.frames.length - 1]} (${clip.frames.length})` : "frames not known";
  const at = clip.fps && clip.frames.length ? `, from ${(clip.frames[0] / clip.fps).toFixed(2)} s` : "";
  const says = el("span");
  const recipe = el("p", { class: "recipe" });
  const tell = (now) => {
    says.textContent = [now.label && `label ${now.label}`, `sample ${now.sample}`, range + at, now.shape.join("×"), now.state].filter(Boolean).join(" · ");
    recipe.textContent = now.recipe ? now.recipe.join(" · ") || "as decoded" : "";
  };
  tell(clip);
  const load = async (url) => {
    const { blob, error } = await ask(url, true);
    if (error) { strip.replaceChildren(none(error)); return; }
    const image = el("img", { alt: [clip.video, range].filter(Boolean).join(", ") });
    image.src = blob;
    image.addEventListener("load", () => URL.revokeObjectURL(blob), { once: true });
    strip.replaceChildren(image);
  };
  if (clip.is_stored) load(`clip.jpg?${place}`);
  else strip.append(none(`Not stored in the folder: ${clip.state}.`));
  const figure = el("figure", {}, el("figcaption", {}, el("strong", {}, `${number} · `, source(clip)), el("br"), says, recipe), strip);
  return { figure, clip, tell, make: () => { strip.replaceChildren(none("Being made…")); return load(`clip.jpg?${place}&make=1`); } };
}

// The video's first frame, or the image, as it is decoded.
function source(clip) {
  return clip.video_id === null ? clip.video
    : el("a", { href: `video.jpg?id=${clip.video_id}`, target: "_blank", rel: "noopener" }, clip.video);
}

async function ask(url, picture = false) {
  try {
    const response = await fetch(url, { cache: "no-store" });
    if (!response.ok) return { error: await reason(response) };
    return picture ? { blob: URL.createObjectURL(await response.blob()) } : { answer: await response.json() };
  } catch {
    return { error: "viewcache page does not answer: has it ended?" };
  }
}

async function reason(response) {
  const text = await response.text();
  try { return JSON.parse(text).error.message; } catch { return text.trim() || `status ${response.status}`; }
}

which.addEventListener("submit", (event) => {
  event.preventDefault();
  const { task, epoch, iteration } = which.elements;
  show(task.value, Number(epoch.value), Number(iteration.value));
});
for (const [id, step] of [["before", -1], ["after", 1]]) {
  document.getElementById(id).addEventListener("click", () => {
    const { task, epoch, iteration } = which.elements;
    show(task.value, Number(epoch.value), Math.max(0, Number(iteration.value) + step));
  });
}

// Polling -------------------------------------------------------------------------------------------------------------

function draw() {
  drawHead(look);
  for (const each of [drawTasks, drawDue, drawTiers, drawObjects, drawHistory, drawVideos, drawEvictions, drawFailures,
    drawClients, drawChoice]) each(look);
}

async function poll() {
  clearTimeout(timer);
  if (document.hidden || asking) return;
  asking = true;
  try {
    const response = await fetch("overview.json", { headers: tag ? { "If-None-Match": tag } : {}, cache: "no-store" });
    if (response.status === 200) {
      look = await response.json();
      tag = response.headers.get("ETag") ?? "";
      draw();
    } else if (response.status !== 304) complain(await reason(response));
    else if (failures) drawHead(look);
    failures = 0;
  } catch {
    failures += 1;
    complain("viewcache page does not answer: has it ended? What is shown is what was seen last.");
  }
  asking = false;
  timer = setTimeout(poll, failures > 2 ? WAIT_MS : POLL_MS);
}

document.addEventListener("visibilitychange", poll);
document.getElementById("spans").addEventListener("change", () => look && drawHistory(look));
let resized = 0;
window.addEventListener("resize", () => {
  clearTimeout(resized);
  resized = setTimeout(() => look && drawHistory(look), 150);
});
if (location.search) history.replaceState(null, "", "/"); // the key is a cookie now, and need not stay in the address
poll();
