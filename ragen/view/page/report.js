// A report: this page in one file, which answers itself from its data blocks (gzip in base64) instead of a server.
const PAGE_SIZE = 100;
const blocks = new Map(); // id -> promise of its content

export const isReport = document.getElementById("report") !== null;

function read(id) {
  if (!blocks.has(id)) blocks.set(id, unpack(document.getElementById(id).textContent));
  return blocks.get(id);
}

async function unpack(text) {
  const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Response(stream).json();
}

// Where a report of one run begins.
export const startOf = (report) => `#/run/${encodeURIComponent(report.runs[0].id)}`;

const keyOf = (file, index) => `${file}/${index}`;
const heldBy = (content) => new Map(content.episodes.held.map((episode) => [keyOf(episode.file, episode.index), episode]));

function episodesOf(content, query) {
  const { held, files, tags, num_there } = content.episodes;
  const fits = (name, of) => !query.get(name) || String(of) === query.get(name);
  const text = query.get("text")?.toLowerCase();
  const found = held.filter((one) => ["file", "tag", "status", "rollout", "group"].every((name) => fits(name, one[name]))
    && (!query.get("min") || one.reward >= Number(query.get("min"))) && (!query.get("max") || one.reward <= Number(query.get("max")))
    && (!text || textsOf(one).some((each) => String(each ?? "").toLowerCase().includes(text))));
  const sort = query.get("sort") ?? "";
  const key = sort.replace("-", "");
  const sign = sort.startsWith("-") ? -1 : 1;
  if (key) found.sort((a, b) => sign * (a[key] < b[key] ? -1 : a[key] > b[key] ? 1 : 0));
  const page = Number(query.get("page") ?? 0);
  return {
    files, tags, num_there, page, page_size: PAGE_SIZE, indexing: { done: files.length, of: files.length }, total: found.length, is_complete: true,
    rows: found.slice(page * PAGE_SIZE, (page + 1) * PAGE_SIZE).map(({ turns, ...row }) => ({ ...row, turns: turns.length })),
    held: held.filter((one) => one.file === query.get("file")).map((one) => one.index).sort((a, b) => a - b),
  };
}

const textsOf = (episode) => [episode.system, episode.final_observation, ...episode.turns.flatMap((turn) => [turn.user, turn.thought, turn.text])];

function groupOf(content, query) {
  const held = heldBy(content);
  const members = content.episodes.headers
    .filter((one) => one.file === query.get("file") && String(one.group) === query.get("group"))
    .map((one) => ({ ...one, is_held: held.has(keyOf(one.file, one.index)) }));
  return { members, rewards: members.map((one) => (one.reward ?? 0) + (one.penalty ?? 0)) };
}

function filterOf({ filters }, query) {
  const found = query.get("step") ? filters.answers.find((one) => String(one.step) === query.get("step")) : filters.answers.at(-1);
  if (!found) throw new Error(filters.error || "The report does not hold the groups of this step.");
  return found;
}

function episodeOf(content, query) {
  const found = heldBy(content).get(keyOf(query.get("file"), query.get("index")));
  if (!found) throw new Error("The report does not hold this episode. `ragen view` shows all of them.");
  return found;
}

function sweepOf(report, id) {
  const found = report.sweep_answers.find((one) => one.id === id);
  if (!found) throw new Error("The report does not hold this sweep.");
  return found;
}

// What is asked of a run, by the segment behind its id, as in ragen/view/api.py.
const OF_RUN = {
  "": (content) => content.run,
  series: (content) => content.series,
  episodes: episodesOf,
  episode: episodeOf,
  group: groupOf,
  filter: filterOf,
  gradients: (content) => content.gradients,
};

// The answer to a path of the API.
export async function answerOf(path) {
  const report = await read("report");
  const [address, search = ""] = path.split("?");
  const query = new URLSearchParams(search);
  const [, , kind, id, what = ""] = address.split("/");
  if (kind === "report") return report;
  if (kind === "glossary") {
    const names = query.get("names").split(",").filter((name) => Object.hasOwn(report.glossary, name));
    return Object.fromEntries(names.map((name) => [name, report.glossary[name]]));
  }
  if ((kind === "runs" || kind === "sweeps") && id === undefined) return report;
  if (kind === "sweeps") return sweepOf(report, decodeURIComponent(id));
  const run = kind === "runs" && report.runs.find((one) => one.id === decodeURIComponent(id));
  if (!run || !Object.hasOwn(OF_RUN, what)) throw new Error("The report does not hold this. `ragen view` shows everything.");
  return OF_RUN[what](await read(run.block), query);
}
