// All runs: what they are, how far they came, how well they do.
import { useGet, useLive, useThrottled } from "app/api.js";
import { Sparkline } from "app/chart.js";
import { ago, duration, interval, share, visible } from "app/format.js";
import { html, useEffect, useState } from "app/html.js";
import { AdvisoryBadge, Problem, State, Wait } from "app/parts.js";
import { link, replace } from "app/router.js";

const ORDER = ["running", "interrupted", "killed", "failed", "early_stopped", "finished", "unknown"];

// What a row shows: the tag that is chosen, or else the mean over all, as the commands do.
const validation = (run, tag) => run.validation?.[tag] ?? run.mean_validation;
const lastOf = (run, tag) => validation(run, tag)?.success.at(-1) ?? null;
const bestOf = (run, tag) => validation(run, tag)?.best ?? null;

const SORTS = {
  name: (run) => run.name,
  state: (run) => ORDER.indexOf(run.state),
  step: (run) => run.step ?? -1,
  last: (run, tag) => lastOf(run, tag) ?? -1,
  best: (run, tag) => bestOf(run, tag) ?? -1,
  speed: (run) => run.seconds_per_step ?? Infinity,
  left: (run) => run.seconds_left ?? Infinity,
  updated: (run) => run.updated_at ?? "",
};

export function arranged(runs, { text = "", tag = "", sort = "-updated" }) {
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  const found = runs.filter((run) => {
    if (tag && !(run.tags ?? []).includes(tag)) return false;
    const line = [run.name, run.folder, run.kind, run.state, run.model, run.estimator, run.config_name, ...(run.tags ?? [])]
      .join(" ").toLowerCase();
    return words.every((word) => line.includes(word));
  });
  const isFalling = sort.startsWith("-");
  const key = SORTS[sort.replace("-", "")] ?? SORTS.updated;
  const compare = (a, b) => (a < b ? -1 : a > b ? 1 : 0);
  return found.sort((a, b) => (isFalling ? -1 : 1) * compare(key(a, tag), key(b, tag)) || compare(a.name, b.name));
}

function Heading({ name, label, sort, setSort, isNumber }) {
  const isActive = sort.replace("-", "") === name;
  const isFalling = sort.startsWith("-");
  const direction = isActive ? (isFalling ? "descending" : "ascending") : undefined;
  return html`<th scope="col" aria-sort=${direction} class=${isNumber ? "number" : ""}>
    <button type="button" onClick=${() => setSort(isActive && isFalling ? name : `-${name}`)}>
      ${label}<span aria-hidden="true" class="sort-sign">${isActive ? (isFalling ? "↓" : "↑") : ""}</span></button></th>`;
}

function Progress({ run }) {
  if (run.kind === "evaluation" || run.step === null || run.step === undefined) return html`<span class="muted">–</span>`;
  return html`<span class="progress">${run.step}${run.total_steps ? html`<span class="muted"> / ${run.total_steps}</span>
    <progress max=${run.total_steps} value=${Math.min(run.step, run.total_steps)} aria-label="Steps done"></progress>` : ""}</span>`;
}

function Row({ run, tag, isChosen, choose }) {
  const tags = Object.keys(run.validation ?? {});
  const shown = tags.includes(tag) ? tag : `${tags.length > 1 ? "mean of " : ""}${tags.join(", ")}`;
  const curve = validation(run, tag);
  return html`<tr data-run=${run.id} data-state=${run.state}>
    <td class="pick"><input type="checkbox" aria-label=${`Compare ${visible(run.name)}`} checked=${isChosen} onChange=${choose} /></td>
    <th scope="row" class="run-name"><a href=${link(["run", run.id])}>${visible(run.name)}</a>
      <small>${[run.kind === "training" ? run.estimator : run.kind, run.model].filter(Boolean).map(visible).join(" · ")}</small></th>
    <td data-label="State"><${State} state=${run.state} /></td>
    <td data-label="Step" class="number"><${Progress} run=${run} /></td>
    <td data-label="Last" class="number">${curve ? html`<b>${share(lastOf(run, tag))}</b>
      <small>${interval(curve.low?.at(-1), curve.high?.at(-1))}</small>` : "–"}</td>
    <td data-label="Best" class="number">${curve && run.kind !== "evaluation" ? html`${share(curve.best)} <small>${curve.best_step === null || curve.best_step === undefined ? "" : `step ${curve.best_step}`}</small>` : "–"}</td>
    <td data-label="Validation" class="spark">${curve && html`<${Sparkline} steps=${curve.steps} values=${curve.success} low=${curve.low} high=${curve.high} />
      <small>${visible(shown)}</small>`}</td>
    <td data-label="Speed" class="number">${run.seconds_per_step ? html`${duration(run.seconds_per_step)}<small> / step</small>` : "–"}</td>
    <td data-label="Left" class="number">${run.state === "running" ? duration(run.seconds_left) : "–"}</td>
    <td data-label="Updated" class="number">${ago(run.updated_at)}</td>
    <td data-label="Advisories" class=${(run.advisories ?? []).length ? "advisories" : "advisories none"}>${(run.advisories ?? []).slice(0, 2).map((advisory) => html`<${AdvisoryBadge} advisory=${advisory} key=${advisory.rule} />`)}
      ${(run.advisories ?? []).length > 2 && html`<small>and ${run.advisories.length - 2} more</small>`}</td>
  </tr>`;
}

export function Runs({ search }) {
  const { data, error, reload } = useGet("/api/runs");
  const soon = useThrottled(reload, 1000);
  useLive(null, soon);
  const [chosen, setChosen] = useState(new Set());
  const [, tick] = useState(0);
  useEffect(() => {
    const timer = setInterval(() => tick((n) => n + 1), 10000);
    return () => clearInterval(timer);
  }, []);
  const { text = "", tag = "", sort = "-updated" } = search;
  const set = (change) => replace(["runs"], { text, tag, sort, ...change });
  if (!data) return error ? html`<${Problem} error=${error} />` : html`<${Wait} what="the runs" />`;
  const rows = arranged(data.runs, { text, tag, sort });
  const tags = [...new Set(data.runs.flatMap((run) => run.tags ?? []))].sort();
  const toggle = (id) => setChosen((old) => {
    const changed = new Set(old);
    if (!changed.delete(id)) changed.add(id);
    return changed;
  });
  const picked = data.runs.filter((run) => chosen.has(run.id)).map((run) => run.id);
  const heading = { sort, setSort: (value) => set({ sort: value }) };
  return html`
    <div class="page-head"><h1>Runs</h1><span class="muted">${rows.length === data.runs.length ? `${rows.length}` : `${rows.length} of ${data.runs.length}`} below ${data.roots.map(visible).join(", ")}</span></div>
    <${Problem} error=${error} />
    <form class="filters" role="search" onSubmit=${(event) => event.preventDefault()}>
      <label>Search <input type="search" value=${text} onInput=${(event) => set({ text: event.target.value })} placeholder="name, model, state …" /></label>
      <label>Environment <select value=${tag} onChange=${(event) => set({ tag: event.target.value })}>
        <option value="">all</option>${tags.map((name) => html`<option value=${name} key=${name}>${visible(name)}</option>`)}</select></label>
      ${picked.length > 1
        ? html`<a class="button primary" href=${link(["compare", ...picked])}>Compare ${picked.length} runs</a>`
        : html`<span class="hint muted">Tick two or more runs to compare them.</span>`}
    </form>
    ${rows.length === 0 ? html`<p class="empty">${data.runs.length ? "No run matches." : "There is no run here yet. `make demo` makes one."}</p>` : html`
    <div class="scroll" tabindex="0" role="region" aria-label="Runs"><table class="runs">
      <thead><tr><td class="pick"></td>
        <${Heading} name="name" label="Run" ...${heading} /><${Heading} name="state" label="State" ...${heading} />
        <${Heading} name="step" label="Step" isNumber ...${heading} /><${Heading} name="last" label="Last" isNumber ...${heading} />
        <${Heading} name="best" label="Best" isNumber ...${heading} /><th scope="col">Validation</th>
        <${Heading} name="speed" label="Speed" isNumber ...${heading} /><${Heading} name="left" label="Left" isNumber ...${heading} />
        <${Heading} name="updated" label="Updated" isNumber ...${heading} /><th scope="col">Advisories</th></tr></thead>
      <tbody>${rows.map((run) => html`<${Row} run=${run} tag=${tag} key=${run.id} isChosen=${chosen.has(run.id)} choose=${() => toggle(run.id)} />`)}</tbody>
    </table></div>`}`;
}
