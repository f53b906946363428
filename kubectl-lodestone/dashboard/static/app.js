// The page of kubectl lodestone dashboard. It gets updates from the plugin (see edition.go) and shows
// them; it sends nothing. All text comes from clusters and goes through textContent.

const $ = (id) => document.getElementById(id);

// element makes an element of a class with children, which are elements or text.
function element(tag, name, ...children) {
  const made = document.createElement(tag);
  if (name) made.className = name;
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

// write sets the text of an element only where it changes: what does not change is not read out again.
function write(target, text) {
  if (target.textContent !== text) target.textContent = text;
}

// show hides an element without content.
function show(target, visible) {
  if (target.hidden === visible) target.hidden = !visible;
}

const plural = (count, one, many) => `${count.toLocaleString("en")} ${count === 1 ? one : many ?? one + "s"}`;

// ---- Sizes and times

const factors = { "": 1, k: 1e3, M: 1e6, G: 1e9, T: 1e12, P: 1e15, E: 1e18, Ki: 2 ** 10, Mi: 2 ** 20, Gi: 2 ** 30, Ti: 2 ** 40, Pi: 2 ** 50, Ei: 2 ** 60 };

// bytesOf reads a quantity of Kubernetes.
function bytesOf(quantity) {
  const [, number, unit] = /^([0-9.e+]+)([a-zA-Z]*)$/.exec(quantity ?? "") ?? [];
  return (Number(number) || 0) * (factors[unit] ?? 1);
}

// sizeOf writes a number of bytes.
function sizeOf(bytes) {
  let unit = 0;
  const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
  while (bytes >= 1024 && unit < units.length - 1) { bytes /= 1024; unit++; }
  return `${Number.isInteger(bytes) ? bytes : bytes.toFixed(1)} ${units[unit]}`;
}

// lasting writes a number of seconds.
function lasting(seconds) {
  seconds = Math.max(0, Math.round(seconds));
  if (seconds < 120) return `${seconds} s`;
  if (seconds < 2 * 3600) return `${Math.round(seconds / 60)} min`;
  if (seconds < 48 * 3600) return `${Math.round(seconds / 3600)} h`;
  return `${Math.round(seconds / 86400)} days`;
}

const since = (time) => (Date.now() - new Date(time)) / 1000;

// secondsOf reads a duration as Go writes it, such as 1m4.2s.
function secondsOf(text) {
  const unit = { h: 3600, m: 60, s: 1, ms: 1e-3, "µs": 1e-6, ns: 1e-9 };
  return [...text.matchAll(/([0-9.]+)(h|ms|m|s|µs|ns)/g)].reduce((sum, [, number, name]) => sum + number * unit[name], 0);
}

// ---- What is known

let head = { context: "", status: { clusters: [], moves: [], waiting: [], home: {} } };
const volumes = new Map(); // by key: {value, row}
const pods = new Map(); // by key: {value, row}; a row only for pods without volumes
const podsOf = new Map(); // namespace/claim: set of keys of pods
const replicas = new Map(); // by key: the value
const replicasOf = new Map(); // namespace/claim: set of keys of replicas
const movesOf = new Map(); // namespace/claim: the move that is going
const columns = new Map(); // by name of the cluster; "" holds claims without a volume
const dirty = new Set(); // keys of rows to be drawn again, as "v" or "p" and the key

function apply(update) {
  if (update.whole) {
    for (const key of volumes.keys()) if (!update.volumes.set?.[key]) dropVolume(key);
    for (const key of pods.keys()) if (!update.pods.set?.[key]) dropPod(key);
    for (const key of replicas.keys()) if (!update.replicas.set?.[key]) dropReplica(key);
  }
  (update.replicas.gone ?? []).forEach(dropReplica);
  for (const [key, value] of Object.entries(update.replicas.set ?? {})) {
    dropReplica(key);
    const of = `${value.namespace}/${value.claim}`;
    replicas.set(key, value);
    if (!replicasOf.has(of)) replicasOf.set(of, new Set());
    replicasOf.get(of).add(key);
    touch(of);
  }
  (update.pods.gone ?? []).forEach(dropPod);
  (update.volumes.gone ?? []).forEach(dropVolume);
  for (const [key, value] of Object.entries(update.pods.set ?? {})) {
    unlink(key);
    const known = pods.get(key) ?? { row: null };
    known.value = value;
    pods.set(key, known);
    for (const claim of value.claims ?? []) {
      const of = `${value.namespace}/${claim}`;
      if (!podsOf.has(of)) podsOf.set(of, new Set());
      podsOf.get(of).add(key);
      touch(of);
    }
    dirty.add("p" + key);
  }
  for (const [key, value] of Object.entries(update.volumes.set ?? {})) {
    const known = volumes.get(key) ?? { row: null };
    known.value = value;
    volumes.set(key, known);
    remember(value, key);
    dirty.add("v" + key);
  }
  if (update.head) {
    head = update.head;
    findMoves();
  }
  drawHead();
  schedule();
}

// keysOf are the keys of the rows of a claim: more than one where a volume that was kept has its name.
const keysOf = new Map();

function remember(value, key) {
  const of = `${value.namespace}/${value.claim}`;
  if (!keysOf.has(of)) keysOf.set(of, new Set());
  keysOf.get(of).add(key);
}

// touch has the rows of a claim drawn again.
function touch(of) {
  for (const key of keysOf.get(of) ?? []) dirty.add("v" + key);
}

function unlink(key) {
  const value = pods.get(key)?.value;
  for (const claim of value?.claims ?? []) {
    const of = `${value.namespace}/${claim}`;
    podsOf.get(of)?.delete(key);
    touch(of);
  }
}

function dropReplica(key) {
  const value = replicas.get(key);
  if (!value) return;
  replicas.delete(key);
  const of = `${value.namespace}/${value.claim}`;
  replicasOf.get(of)?.delete(key);
  touch(of);
}

function dropPod(key) {
  unlink(key);
  pods.get(key)?.row?.remove();
  pods.delete(key);
}

function dropVolume(key) {
  const known = volumes.get(key);
  if (!known) return;
  known.row?.remove();
  volumes.delete(key);
  keysOf.get(`${known.value.namespace}/${known.value.claim}`)?.delete(key);
}

function findMoves() {
  const before = new Map(movesOf);
  movesOf.clear();
  for (const move of head.status.moves) {
    if (move.state !== "Going") continue;
    for (const claim of move.claims) movesOf.set(`${move.namespace}/${claim}`, move);
  }
  for (const of of new Set([...before.keys(), ...movesOf.keys()])) {
    if (moveTag(before.get(of)) !== moveTag(movesOf.get(of))) touch(of);
  }
}

// ---- The head of the page: summary, what waits, moves, clusters

function drawHead() {
  const status = head.status;
  document.title = `Lodestone: ${head.context}`;
  write($("home"), `home cluster of context “${head.context}”${status.homeID ? `, ID ${status.homeID}` : ""}`);
  write($("problem"), head.problem ? `What you see is not new: ${head.problem}` : "");
  show($("problem"), Boolean(head.problem));
  write($("unread"), status.unread?.length ? `Left out, for you may not list and watch it: ${status.unread.join(", ")}. Ask an administrator for these rights, or give -n with a namespace of yours.` : "");
  show($("unread"), Boolean(status.unread?.length));
  drawSummary(status);
  drawWaiting(status);
  drawMoves(status);
  drawColumns(status);
}

function drawSummary(status) {
  const ready = status.clusters.filter((cluster) => cluster.ready).length;
  const waiting = status.waiting.length + (status.omitted ?? 0);
  const going = status.moves.filter((move) => move.state === "Going");
  let bytes = 0, made = 0, users = 0;
  for (const { value } of pods.values()) users += value.claims?.length ? 1 : 0;
  for (const one of columns.values()) {
    if (one.name === noVolume) continue;
    bytes += one.bytes;
    made += one.volumes;
  }
  const figures = [
    ["#clusters", ready < status.clusters.length ? "bad" : "", plural(status.clusters.length, "remote cluster"),
      status.clusters.length === 0 ? "kubectl lodestone peer adds one" : ready === status.clusters.length ? "all are ready" : `${status.clusters.length - ready} not ready`],
    ["#clusters", "", plural(made, "volume"), `${sizeOf(bytes)}, used by ${plural(users, "pod")}`],
    ["#moves", going.length ? "move" : "", plural(going.length, "move"), going.length ? "under way" : "none is under way"],
    ["#waiting", waiting ? "wait" : "", waiting ? `${waiting} waiting` : "0 waiting", waiting ? "pods and claims, with the reason" : "no pod and no claim waits"],
  ];
  const list = $("summary");
  figures.forEach(([target, name, figure, what], i) => {
    let item = list.children[i];
    if (!item) {
      item = element("li", "", element("a", "", element("div", "figure"), element("div", "what")));
      list.append(item);
    }
    const link = item.firstChild;
    link.className = name;
    link.setAttribute("href", $(target.slice(1)).hidden ? "#clusters" : target);
    write(link.children[0], figure);
    write(link.children[1], what);
  });
  announce([
    ready < status.clusters.length ? `${status.clusters.length - ready} of ${plural(status.clusters.length, "cluster")} not ready` : "",
    waiting ? `${plural(waiting, "pod or claim", "pods and claims")} waiting` : "nothing waits",
    going.length ? `${plural(going.length, "move")} under way` : "",
  ].filter(Boolean).join(", "));
}

// announce has screen readers told, at most every few seconds, when the sums change.
let announced = "", toSay = "", saying = 0;
function announce(text) {
  toSay = text;
  if (saying || toSay === announced) return;
  saying = setTimeout(() => {
    saying = 0;
    announced = toSay;
    write($("news"), announced);
  }, 3000);
}

// keyed brings the children of a list in line with items: make is called for new ones, fill for all.
function keyed(list, items, keyOf, make, fill) {
  const had = new Map([...list.children].map((child) => [child.dataset.key, child]));
  items.forEach((item, i) => {
    const key = keyOf(item);
    let child = had.get(key);
    had.delete(key);
    if (!child) {
      child = make(item);
      child.dataset.key = key;
    }
    fill(child, item);
    if (list.children[i] !== child) list.insertBefore(child, list.children[i] ?? null);
  });
  for (const child of had.values()) child.remove();
}

function card() {
  return element("li", "", element("div", "who", element("span"), element("small")), element("p"));
}

function fillCard(child, name, about, text) {
  write(child.firstChild.children[0], name);
  write(child.firstChild.children[1], about);
  write(child.children[1], text);
}

const kinds = { Pod: "pod", PersistentVolumeClaim: "claim" };

function drawWaiting(status) {
  show($("waiting"), status.waiting.length + (status.omitted ?? 0) > 0);
  keyed($("waiting-list"), status.waiting, (w) => `${w.kind}/${w.namespace}/${w.name}`, card,
    (child, w) => fillCard(child, w.name, `${kinds[w.kind] ?? w.kind} in ${w.namespace}`, w.why));
  show($("waiting-list"), status.waiting.length > 0);
  write($("waiting-more"), status.omitted ? `and up to ${status.omitted} more: kubectl lodestone why -A lists them` : "");
  show($("waiting-more"), Boolean(status.omitted));
  show($("notes"), Boolean(status.notes?.length));
  keyed($("notes-list"), status.notes ?? [], (note) => note, () => element("li"), (child, note) => write(child, note));
}

// ---- Moves

// phases are those of a move that goes well, in their order, and what happens in each.
const phases = [
  ["Prepare", "everything is checked and prepared"], ["Provision", "the volume is made at the target"],
  ["PreCopy", "data is copied while pods run"], ["Quiesce", "the pods that use the claim are ended"],
  ["Fence", "it is made sure that nothing writes any more"], ["FinalSync", "the last changes are copied while new pods wait"],
  ["Verify", "both copies are compared"], ["Commit", "the claim gets its volume at the target"],
  ["Resume", "pods start at the target"],
];
const other = { RollBack: "the move goes back to the source", Retain: "done; the copy at the source is kept for a while", Finalize: "done; the copy at the source is removed", Done: "done" };

function moveTag(move) {
  if (!move) return "";
  const percent = move.bytesTotal ? `, ${Math.min(100, Math.floor((100 * move.bytes) / move.bytesTotal))} % of this pass` : "";
  return `moving to ${move.target}: ${move.phase || "is taken up"}${move.phase === "PreCopy" || move.phase === "FinalSync" ? percent : ""}`;
}

function place(target, name) {
  target.className = "place" + (name === "home" ? " home" : name ? "" : " none");
  write(target, name || "not known yet");
}

function makeMove() {
  const child = element("li", "",
    element("div", "top", element("div", "who", element("span"), element("small")),
      element("div", "way", element("span", "place"), element("span", "", "→"), element("span", "place"))),
    element("ol", "steps", ...phases.map(() => element("li"))),
    element("p", "phase", element("b"), element("span")),
    element("progress"), element("p", "numbers", element("span"), element("span")), element("p", "message-of dim"), element("p", "down"));
  const arrow = child.querySelector(".way").children[1];
  arrow.setAttribute("role", "img");
  arrow.setAttribute("aria-label", "to");
  child.querySelector(".steps").setAttribute("aria-hidden", "true");
  child.querySelector("progress").setAttribute("aria-label", "bytes of this pass");
  return child;
}

function fillMove(child, move) {
  const find = (selector) => child.querySelector(selector);
  const step = phases.findIndex(([phase]) => phase === move.phase);
  write(find(".who").children[0], move.claims.join(", "));
  write(find(".who").children[1], `${move.namespace}, move ${move.name}, begun ${lasting(since(move.started))} ago`);
  place(find(".way").children[0], move.source);
  place(find(".way").children[2], move.target);
  [...find(".steps").children].forEach((item, i) => { item.className = i < step ? "past" : i === step ? "now" : ""; });
  write(find(".phase b"), move.phase || "Waiting");
  const text = step >= 0 ? phases[step][1] : other[move.phase] ?? "the provisioner has not taken it up yet";
  write(find(".phase span"), `: ${text}${step >= 0 ? ` (step ${step + 1} of ${phases.length})` : ""}`);
  const copying = Boolean(move.bytesTotal) && ["PreCopy", "FinalSync", "Verify"].includes(move.phase);
  show(find("progress"), copying);
  show(find(".numbers"), copying);
  if (copying) {
    const bar = find("progress");
    bar.max = move.bytesTotal;
    bar.value = Math.min(move.bytes ?? 0, move.bytesTotal);
    const percent = Math.floor((100 * bar.value) / bar.max);
    write(find(".numbers").children[0], `${percent} %, ${sizeOf(move.bytes ?? 0)} of ${sizeOf(move.bytesTotal)}${move.pass ? `, pass ${move.pass}` : ""}`);
    const left = move.rate ? (move.bytesTotal - (move.bytes ?? 0)) / move.rate : 0;
    write(find(".numbers").children[1], move.rate ? `${sizeOf(move.rate)}/s${left > 0 ? `, ${lasting(left)} left` : ""}` : "");
  }
  write(find(".message-of"), move.message ?? "");
  show(find(".message-of"), Boolean(move.message));
  write(find(".down"), move.downSince ? `Pods cannot use ${move.claims.length === 1 ? "the claim" : "the claims"} since ${lasting(since(move.downSince))}.` : "");
  show(find(".down"), Boolean(move.downSince));
}

function drawMoves(status) {
  const newest = status.moves.toSorted((a, b) => new Date(b.started) - new Date(a.started));
  const going = newest.filter((move) => move.state === "Going"), over = newest.filter((move) => move.state !== "Going");
  const keyOf = (move) => `${move.namespace}/${move.name}`;
  show($("moves"), newest.length > 0);
  keyed($("moves-going"), going, keyOf, makeMove, fillMove);
  show($("moves-over"), over.length > 0);
  write($("moves-over-title"), going.length ? `${plural(over.length, "earlier move")}` : `${plural(over.length, "move")}, none under way`);
  keyed($("moves-over-list"), over.slice(0, 50), keyOf, card, (child, move) => {
    const gap = move.downtime ? `; pods could not use it for ${lasting(secondsOf(move.downtime))}` : "";
    const text = move.state === "Moved" ? `moved from ${move.source || "its place"} to ${move.target}${gap}${move.phase === "Done" ? "" : "; the copy at the source is still there"}` : `${move.state.toLowerCase()}: ${move.message || "see kubectl describe vmove"}`;
    fillCard(child, move.claims.join(", "), `${move.namespace}, move ${move.name}, ${lasting(since(move.started))} ago`, text);
    child.children[1].className = `state-${move.state}`;
  });
}

// ---- Clusters, a column each

const noVolume = "";
const unknownPlace = "?";

function column(name) {
  let made = columns.get(name);
  if (made) return made;
  const title = element("h3"), pill = element("span", "pill"), facts = element("dl", "facts"), message = element("p", "message"),
    rows = element("div"), empty = element("p", "empty");
  title.id = `cluster-${columns.size}`;
  const section = element("section", name === "home" ? "cluster home" : name === noVolume || name === unknownPlace ? "cluster none" : "cluster",
    element("div", "head", title, pill), facts, message, rows, empty);
  section.setAttribute("aria-labelledby", title.id);
  made = { name, section, title, pill, facts, message, rows, empty, groups: new Map(), volumes: 0, pods: new Map(), bytes: 0 };
  columns.set(name, made);
  return made;
}

function drawColumns(status) {
  column("home");
  for (const cluster of status.clusters) column(cluster.name);
  const order = (name) => (name === "home" ? 0 : name === unknownPlace ? 2 : name === noVolume ? 3 : 1);
  const sorted = [...columns.values()].sort((a, b) => order(a.name) - order(b.name) || (a.name < b.name ? -1 : 1));
  const known = new Set(["home", ...status.clusters.map((cluster) => cluster.name)]);
  let at = 0;
  for (const one of sorted) {
    if (!known.has(one.name) && one.groups.size === 0) {
      one.section.remove();
      columns.delete(one.name);
      continue;
    }
    if ($("columns").children[at] !== one.section) $("columns").insertBefore(one.section, $("columns").children[at] ?? null);
    at++;
    drawColumn(one, status);
  }
}

function drawColumn(one, status) {
  const cluster = status.clusters.find((c) => c.name === one.name);
  const facts = [];
  let name = one.name, kind = "remote cluster", pill = "", bad = false, message = "";
  if (one.name === "home") {
    kind = "this cluster";
    facts.push(["Volumes", String(one.volumes)], ["Size", sizeOf(one.bytes)], ["Pods on them", String(one.pods.size)]);
    if (status.home.nodes) facts.push(["Nodes ready", `${status.home.readyNodes} of ${status.home.nodes}`]);
    if (status.home.virtualClasses?.length) facts.push([status.home.virtualClasses.length === 1 ? "Virtual class" : "Virtual classes", status.home.virtualClasses.join(", ")]);
  } else if (one.name === noVolume) {
    [name, kind] = ["No volume yet", "claims that wait"];
    facts.push(["Claims", String(one.volumes)], ["Size asked for", sizeOf(one.bytes)]);
  } else if (one.name === unknownPlace) {
    [name, kind] = ["Place not known", ""];
    message = "The volumes of these claims cannot be read, so nobody can say where their data is.";
  } else {
    facts.push(["Volumes", String(one.volumes)], ["Size", sizeOf(one.bytes)], ["Pods", String(Math.max(one.pods.size, cluster?.pods ?? 0))]);
    pill = cluster?.ready ? "Ready" : "Not ready";
    bad = !cluster?.ready;
    if (bad) message = cluster ? `${cluster.reason}: ${cluster.message}` : "There is no RemoteCluster of this name.";
    if (cluster?.nodes?.length) {
      facts.push(["Nodes ready", `${cluster.nodes.filter((node) => node.ready).length} of ${cluster.nodes.length}`]);
      const offer = (what) => cluster.nodes.map((node) => node.allocatable?.[what]).filter(Boolean).join(" + ");
      if (offer("cpu")) facts.push(["CPU", offer("cpu")]);
      if (offer("memory")) facts.push(["Memory", offer("memory")]);
      const down = cluster.nodes.find((node) => !node.ready && node.message);
      if (!bad && down) message = `node ${down.name}: ${down.message}`;
    }
    const network = cluster?.conditions?.find((condition) => condition.type === "NetworkReady");
    if (network) facts.push(["Network", network.status === "True" ? "pods reach each other" : "pods do not reach each other"]);
    if (network?.status === "False" && !message) message = network.message;
    if (cluster?.kubernetesVersion) facts.push(["Kubernetes", cluster.kubernetesVersion]);
    if (cluster?.storageClasses?.length) facts.push(["Classes", cluster.storageClasses.join(", ")]);
    if (cluster?.credentials?.expires) facts.push(["Login ends", new Date(cluster.credentials.expires).toLocaleDateString("en", { dateStyle: "medium" })]);
  }
  if (one.title.dataset.name !== name) {
    one.title.dataset.name = name;
    one.title.replaceChildren(name, " ", element("small", "", kind));
  }
  write(one.pill, pill);
  show(one.pill, Boolean(pill));
  one.pill.classList.toggle("bad", bad);
  write(one.message, message);
  show(one.message, Boolean(message));
  keyed(one.facts, facts, ([fact]) => fact, ([fact]) => element("div", "", element("dt", "", fact), element("dd")),
    (child, [, value]) => write(child.children[1], value));
  write(one.empty, one.groups.size ? "" : one.name === "home" ? "No virtual claim has its volume here." : "No volume and no pod of home is here.");
  show(one.empty, one.groups.size === 0);
}

// ---- Rows

const mostRows = 100; // of a block
const rowHeight = 56; // about how high a row is, before it was laid out

class Block {
  // A Block has neighbouring rows of a group, so few that drawing them takes no time.
  constructor(rows) {
    this.rows = rows;
    this.element = element("div", "block", ...rows.map((row) => row.item));
    this.resize();
  }
  resize() {
    this.element.style.containIntrinsicHeight = `auto ${this.rows.length * rowHeight}px`;
  }
}

// first returns the least index from which on a sorted list fulfils a condition.
function first(list, condition) {
  let low = 0, high = list.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (condition(list[middle])) high = middle; else low = middle + 1;
  }
  return low;
}

class Group {
  // A Group has the rows of a namespace in a column, sorted, in blocks.
  constructor(one, key, title) {
    this.column = one;
    this.key = key;
    this.blocks = [];
    this.size = 0;
    this.shown = 0;
    this.list = element("div");
    this.list.setAttribute("role", "list");
    this.list.setAttribute("aria-label", title);
    this.count = element("span");
    this.section = element("div", "group", element("h4", "", element("span", "", title), this.count), this.list);
    const after = [...one.groups.keys()].filter((other) => other > key).sort()[0];
    one.rows.insertBefore(this.section, after === undefined ? null : one.groups.get(after).section);
    one.groups.set(key, this);
  }
  // blockOf returns the index of the block in which a row of a name is or belongs.
  blockOf(name) {
    return Math.max(0, first(this.blocks, (block) => block.rows[0].name > name) - 1);
  }
  insert(row) {
    if (this.blocks.length === 0) {
      this.blocks.push(new Block([row]));
      this.list.append(this.blocks[0].element);
      return this.counted(1, row);
    }
    const index = this.blockOf(row.name), block = this.blocks[index];
    const at = first(block.rows, (other) => other.name > row.name);
    block.element.insertBefore(row.item, block.rows[at]?.item ?? null);
    block.rows.splice(at, 0, row);
    if (block.rows.length > mostRows) {
      const half = new Block(block.rows.splice(mostRows / 2));
      this.blocks.splice(index + 1, 0, half);
      block.element.after(half.element);
    }
    block.resize();
    this.counted(1, row);
  }
  remove(row) {
    const index = this.blockOf(row.name), block = this.blocks[index];
    block.rows.splice(block.rows.indexOf(row), 1);
    row.item.remove();
    if (block.rows.length === 0) {
      block.element.remove();
      this.blocks.splice(index, 1);
    } else block.resize();
    this.counted(-1, row);
  }
  counted(sign, row) {
    this.size += sign;
    if (!row.item.hidden) this.shown += sign;
    changed.add(this);
  }
  draw() {
    if (this.size === 0) {
      this.section.remove();
      if (this.column.groups.get(this.key) === this) this.column.groups.delete(this.key);
      return;
    }
    show(this.section, this.shown > 0);
    write(this.count, this.shown === this.size ? String(this.size) : `${this.shown} of ${this.size}`);
  }
}

const changed = new Set(); // groups whose count is to be written again

class Row {
  // A Row shows a volume, or a pod without volumes.
  constructor(name) {
    this.name = name;
    this.group = null;
    this.text = "";
    this.size = 0;
    this.pods = [];
    this.title = element("span", "name");
    this.amount = element("span", "size");
    this.more = element("div", "more");
    this.item = element("div", "row", element("div", "line", this.title, this.amount), this.more);
    this.item.setAttribute("role", "listitem");
  }
  count(sign) {
    const one = this.group.column;
    one.volumes += sign * (this.pod ? 0 : 1);
    for (const key of this.pods) { // a pod of several volumes counts once: one.pods has how many rows show it
      const rows = (one.pods.get(key) ?? 0) + sign;
      if (rows > 0) one.pods.set(key, rows); else one.pods.delete(key);
    }
    one.bytes += sign * this.size;
  }
  // put shows it in a group, with these sums.
  put(one, key, title, size, podKeys) {
    if (this.group) this.count(-1);
    if (this.group?.column === one && this.group.key === key) {
      this.filter();
    } else {
      this.group?.remove(this);
      this.group = null;
      this.filter();
      this.group = one.groups.get(key) ?? new Group(one, key, title);
      this.group.insert(this);
    }
    this.size = size;
    this.pods = podKeys;
    this.count(1);
  }
  remove() {
    if (!this.group) return;
    this.count(-1);
    this.group.remove(this);
    this.group = null;
  }
  filter() {
    const hidden = wanted.some((word) => !this.text.includes(word));
    if (hidden === this.item.hidden) return;
    this.item.hidden = hidden;
    if (!this.group) return;
    this.group.shown += hidden ? -1 : 1;
    changed.add(this.group);
  }
}

// podSpan shows a pod under its name, or without. Its colour says nothing that its text does not say.
function podSpan(pod, cluster, name) {
  const good = pod.phase === "Running" && pod.ready;
  const bad = pod.phase === "Failed";
  const state = pod.phase === "Running" ? (pod.ready ? "runs" : "runs, not ready") : pod.phase.toLowerCase();
  const where = pod.node ? (pod.node === cluster ? "" : ` on ${pod.node}`) : "";
  const dot = element("span", "dot");
  dot.setAttribute("aria-hidden", "true");
  return element("span", `pod ${good ? "good" : bad ? "bad" : "wait"}`, dot, element("span", "", `${name}${state}${where}`));
}

function drawVolume(key) {
  const known = volumes.get(key);
  if (!known) return;
  const value = known.value, of = `${value.namespace}/${value.claim}`;
  known.row ??= new Row(`${value.claim}/${value.name ?? ""}`);
  const row = known.row, move = movesOf.get(of);
  const userKeys = [...(podsOf.get(of) ?? [])].sort(), users = userKeys.map((name) => pods.get(name).value);
  write(row.title, value.claim);
  write(row.amount, value.size);
  const more = users.map((pod) => podSpan(pod, value.cluster, pod.name + " "));
  if (users.length === 0) more.push(element("span", "", "no pod uses it"));
  if (move) more.push(element("span", "tag move", moveTag(move)));
  for (const name of [...(replicasOf.get(of) ?? [])].sort()) more.push(replicaTag(replicas.get(name)));
  if (value.phase !== "Bound") more.push(element("span", "tag", phaseText(value)));
  if (value.trouble) more.push(element("span", "tag bad", value.trouble));
  if (value.declaredLost) more.push(element("span", "tag bad", "declared lost"));
  if (value.class && (head.status.home.virtualClasses?.length ?? 0) > 1) more.push(element("span", "", value.class));
  row.more.replaceChildren(...more);
  row.text = [of, value.name, value.class, row.more.textContent, users.map((pod) => pod.name).join(" "), move ? "moving" : "",
    value.phase === "Pending" ? "waiting" : "", value.trouble ? "trouble" : ""].join(" ").toLowerCase();
  const where = value.cluster || (value.phase === "Bound" ? unknownPlace : noVolume);
  row.put(column(where), value.namespace, value.namespace, bytesOf(value.size), userKeys);
}

// replicaTag says which copy of a volume there is, and of when: a time that stays true while nothing changes.
function replicaTag(replica) {
  const late = replica.late && !replica.paused;
  const quiet = ["Paused", "Seeding", "Moving", "Waiting", "Unknown"].includes(replica.state);
  const wrong = [late ? "late" : "", replica.healthy || replica.state === "Late" ? "" : replica.state].filter(Boolean).join(", ");
  const what = replica.sealed ? `copy in ${replica.standby} of ${moment(replica.sealed)}` : `no copy in ${replica.standby} yet`;
  const stuck = replica.runnable === "False";
  const says = [wrong, stuck ? "could not run its pods" : ""].filter(Boolean).join(", ");
  const tag = element("span", !says ? "" : quiet && !late && !stuck ? "tag" : "tag bad", says ? `${what}: ${says}` : what);
  tag.title = [replica.message, stuck ? replica.runnableMessage : ""].filter(Boolean).join("; ");
  return tag;
}

// Formats are kept: to make one takes longer than to draw a row.
const timeOfDay = new Intl.DateTimeFormat("en", { hour12: false, hour: "2-digit", minute: "2-digit" });
const dayOfYear = new Intl.DateTimeFormat("en", { month: "short", day: "numeric" });

// moment writes a time of today as a time of day, and others with their day.
function moment(time) {
  const at = new Date(time), clock = timeOfDay.format(at);
  return at.toDateString() === new Date().toDateString() ? clock : `${dayOfYear.format(at)}, ${clock}`;
}

function phaseText(value) {
  switch (value.phase) {
    case "Pending": return "waits for its volume";
    case "Terminating": return "is being deleted";
    case "Lost": return "its volume is gone";
    case "Released": return "kept; its claim was deleted";
    default: return value.phase;
  }
}

// drawPod shows a pod of a remote cluster that uses no volume; others are shown on their volumes.
function drawPod(key) {
  const known = pods.get(key);
  if (!known) return;
  const value = known.value;
  if (value.claims?.length || !value.cluster || value.cluster === "home") {
    known.row?.remove();
    known.row = null;
    return;
  }
  known.row ??= new Row(key);
  const row = known.row;
  row.pod = true;
  write(row.title, value.name);
  write(row.amount, "");
  row.more.replaceChildren(podSpan(value, value.cluster, ""), element("span", "", `in ${value.namespace}`));
  row.text = `${key} ${value.phase} ${value.node} pod`.toLowerCase();
  row.put(column(value.cluster), "\uffff", "Pods without volumes", 0, [key]);
}

// ---- Drawing, a few milliseconds a frame

const slice = 6;
let scheduled = false;

function schedule() {
  if (scheduled || (dirty.size === 0 && changed.size === 0 && refilter === null)) return;
  scheduled = true;
  requestAnimationFrame(draw);
}

function draw() {
  scheduled = false;
  const begun = performance.now();
  for (const key of dirty) {
    dirty.delete(key);
    if (key[0] === "v") drawVolume(key.slice(1)); else drawPod(key.slice(1));
    if (performance.now() - begun > slice) break;
  }
  while (refilter !== null && performance.now() - begun < slice) {
    const next = refilter.next();
    if (next.done) refilter = null; else next.value.filter();
  }
  for (const group of changed) group.draw();
  changed.clear();
  if (dirty.size === 0) {
    drawSummary(head.status);
    drawColumns(head.status);
  }
  if (refilter === null) drawFound();
  document.body.dataset.drawn = dirty.size === 0 && refilter === null ? "yes" : "no";
  schedule();
}

// ---- The filter

let wanted = [], refilter = null;

function* allRows() {
  for (const known of [...volumes.values(), ...pods.values()]) if (known.row) yield known.row;
}

const many = 500; // rows: see app.css

function drawFound() {
  let shown = 0;
  for (const one of columns.values()) for (const group of one.groups.values()) shown += group.shown;
  $("columns").classList.toggle("many", shown > many);
  write($("found"), wanted.length === 0 ? "" : shown ? plural(shown, "match", "matches") : "nothing matches");
}

$("filter").addEventListener("input", () => {
  wanted = $("filter").value.toLowerCase().split(/\s+/).filter(Boolean);
  refilter = allRows();
  schedule();
});

document.addEventListener("keydown", (event) => {
  if (event.key === "/" && !event.ctrlKey && !event.metaKey && !event.altKey && document.activeElement !== $("filter")) {
    event.preventDefault();
    $("filter").focus();
  } else if (event.key === "Escape" && document.activeElement === $("filter")) {
    $("filter").value = "";
    $("filter").dispatchEvent(new Event("input"));
  }
});

// ---- The connection to the plugin

function connection(state, text) {
  $("connection").dataset.state = state;
  write($("connection-text"), text);
}

const clock = () => new Date().toLocaleTimeString("en", { hour12: false });

const events = new EventSource("events");
events.addEventListener("message", (event) => {
  apply(JSON.parse(event.data));
  connection("live", "Live");
});
events.addEventListener("open", () => connection("live", "Live"));
events.addEventListener("error", () => {
  if ($("connection").dataset.state !== "lost") connection("lost", `No answer since ${clock()}: does kubectl lodestone dashboard still run?`);
});

// What is said of times goes on while nothing changes.
setInterval(() => { if (!document.hidden) drawMoves(head.status); }, 1000);
