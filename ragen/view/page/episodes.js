// The episodes of a run, by file, tag, status, reward and text.
import { query, runPath, useGet, useLive, useThrottled } from "app/api.js";
import { number, visible } from "app/format.js";
import { html, useEffect, useState } from "app/html.js";
import { Crumbs, Problem, Tabs, Wait } from "app/parts.js";
import { link, replace } from "app/router.js";

const STATUSES = ["solved", "failed", "truncated", "out_of_turns", "out_of_actions", "context_full", "env_error", "env_timeout", "engine_error"];
const COLUMNS = [
  ["step", "Step"], ["tag", "Environment"], ["group", "Group"], ["member", "Member"], ["seed", "Seed"], ["status", "Status"],
  ["reward", "Reward"], ["penalty", "Penalty"], ["turns", "Turns"], ["actions", "Actions"], ["tokens", "Tokens"],
];
const WORDS = new Set(["tag", "status"]);

export const statusName = (status) => String(status ?? "").replaceAll("_", " ");
export const fileName = (file) => (file.step === null || file.step === undefined ? file.name : `${file.rollout === "val" ? "validation" : "training"}, step ${file.step}`);

export function Status({ status }) {
  return html`<span class=${`status status-${status === "solved" ? "solved" : "other"}`}><span aria-hidden="true">${status === "solved" ? "✓" : "✕"}</span> ${visible(statusName(status))}</span>`;
}

// An input that holds what is being typed until it is done: a new step draws the page again.
function Draft({ value, onDone, ...rest }) {
  const [draft, setDraft] = useState(value);
  useEffect(() => setDraft(value), [value]);
  return html`<input ...${rest} value=${draft} onInput=${(event) => setDraft(event.target.value)} onChange=${() => onDone(draft)} />`;
}

function Filters({ search, set, files, tags }) {
  const field = (name) => ({ value: search[name] ?? "", onChange: (event) => set({ [name]: event.target.value }) });
  const draft = (name) => ({ value: search[name] ?? "", onDone: (value) => set({ [name]: value }) });
  return html`<form class="filters" role="search" onSubmit=${(event) => event.preventDefault()}>
    <label>Rollout <select ...${field("file")}><option value="">all</option>
      ${files.map((file) => html`<option value=${file.name} key=${file.name}>${visible(fileName(file))}</option>`)}</select></label>
    ${tags.length > 1 && html`<label>Environment <select ...${field("tag")}><option value="">all</option>${tags.map((tag) => html`<option value=${tag} key=${tag}>${visible(tag)}</option>`)}</select></label>`}
    <label>Status <select ...${field("status")}><option value="">all</option>${STATUSES.map((status) => html`<option value=${status} key=${status}>${statusName(status)}</option>`)}</select></label>
    <label>Reward from <${Draft} type="number" step="any" class="short" ...${draft("min")} /></label>
    <label>to <${Draft} type="number" step="any" class="short" ...${draft("max")} /></label>
    <label>Text <${Draft} type="search" placeholder="in the replies" ...${draft("text")} /></label>
  </form>`;
}

function Row({ id, row, columns }) {
  const cell = (name) => {
    if (name === "step") return html`<a href=${link(["run", id, "episode", row.file, row.index])}>${row.rollout === "val" ? "val " : ""}${row.step ?? visible(row.file)}</a>`;
    if (name === "group") return html`<a href=${link(["run", id, "group", row.file, row.group])} aria-label=${`Group ${row.group} of ${row.file}`}>${row.group}</a>`;
    if (name === "status") return html`<${Status} status=${row.status} />`;
    return WORDS.has(name) ? visible(row[name]) : number(row[name]);
  };
  return html`<tr>${columns.map(([name, label]) => html`<td key=${name} data-label=${label} class=${WORDS.has(name) ? "" : "number"}>${cell(name)}</td>`)}</tr>`;
}

export function Episodes({ id, search }) {
  const { page = "0", sort = "", file = "", tag = "", status = "", min = "", max = "", text = "" } = search;
  const run = useGet(runPath(id));
  const { data, stale, error, reload } = useGet(runPath(id) + "/episodes" + query({ page, sort, file, tag, status, min, max, text }));
  const soon = useThrottled(reload, 2000);
  useLive([id], soon);
  const answer = data ?? stale;
  const isReading = answer && answer.indexing.done < answer.indexing.of;
  useEffect(() => {
    if (isReading) soon();
  }, [isReading, answer]);
  const set = (change) => replace(["run", id, "episodes"], { file, tag, status, min, max, text, sort, page: "", ...change });
  const name = run.data?.name ?? id;
  const head = html`<${Crumbs} items=${[[name, ["run", id]], ["Episodes"]]} />
    <div class="page-head"><h1>Episodes</h1><${Tabs} id=${id} kind=${run.data?.kind} current="episodes" /></div>`;
  if (!answer) return html`${head}${error ? html`<${Problem} error=${error} />` : html`<${Wait} what="the episodes" />`}`;
  const pages = Math.max(1, Math.ceil(answer.total / answer.page_size));
  const isFalling = sort.startsWith("-");
  const columns = COLUMNS.filter(([key]) => key === "step" || answer.rows.some((row) => row[key] !== null && row[key] !== undefined));
  return html`${head}
    <${Filters} search=${search} set=${set} files=${answer.files} tags=${answer.tags} />
    <${Problem} error=${error} />
    <p class="muted" role="status">${answer.total} ${answer.total === 1 ? "episode" : "episodes"}${answer.num_there ? ` of ${answer.num_there}` : ""}${answer.is_complete ? "" : " so far: the search stopped after 2 s, choose a rollout to search it whole"}</p>
    ${isReading && html`<p class="muted"><progress max=${answer.indexing.of} value=${answer.indexing.done} aria-label="Files read"></progress> ${answer.indexing.done} of ${answer.indexing.of} files are read …</p>`}
    ${answer.rows.length > 0 && html`<div class="scroll" tabindex="0" role="region" aria-label="Episodes"><table class="episodes"><thead><tr>${columns.map(([key, label]) => html`
      <th scope="col" key=${key} class=${WORDS.has(key) ? "" : "number"} aria-sort=${sort.replace("-", "") === key ? (isFalling ? "descending" : "ascending") : undefined}>
        <button type="button" onClick=${() => set({ sort: sort === `-${key}` ? key : `-${key}` })}>${label}<span class="sort-sign" aria-hidden="true">${sort.replace("-", "") === key ? (isFalling ? "↓" : "↑") : ""}</span></button></th>`)}</tr></thead>
      <tbody>${answer.rows.map((row) => html`<${Row} id=${id} row=${row} columns=${columns} key=${`${row.file}/${row.index}`} />`)}</tbody></table></div>`}
    ${pages > 1 && html`<nav class="pager" aria-label="Pages of the list">
      <button type="button" disabled=${Number(page) <= 0} onClick=${() => set({ page: Number(page) - 1 || "" })}>Earlier</button>
      <span>${Number(page) + 1} of ${pages}</span>
      <button type="button" disabled=${Number(page) + 1 >= pages} onClick=${() => set({ page: Number(page) + 1 })}>Later</button></nav>`}`;
}
