// Several runs in the same charts: each as a line, or those that differ in their seed alone as mean and interval.
import { get, runPath } from "app/api.js";
import { AnyMetric, Question, useGlossary } from "app/charts.js";
import { interval, share, validationsOf, visible } from "app/format.js";
import { html, useEffect, useMemo, useState } from "app/html.js";
import { Choice, Crumbs, Problem, State, Wait } from "app/parts.js";
import { questions, tagsOf } from "app/questions.js";
import { link, replace } from "app/router.js";
import { written } from "app/run.js";
import { axisOf, useTables } from "app/series.js";
import { student } from "app/statistics.js";

// Keys in which seeds of the same experiment differ.
const OWN = /(^|\.)(seed(\..*)?|default_local_dir|experiment_name|.*_seed)$/;

const settings = (run) => Object.entries(run.config ?? {}).filter(([key]) => !OWN.test(key));

// [[run, ...], ...]: runs whose configurations differ in seeds and folders alone.
export function seedGroups(runs) {
  const groups = new Map();
  for (const run of runs) {
    const key = JSON.stringify(settings(run).sort(([a], [b]) => (a < b ? -1 : 1)));
    groups.set(key, [...(groups.get(key) ?? []), run]);
  }
  return [...groups.values()];
}

// [[key, [value of each run]], ...] of the keys whose values differ.
export function differences(runs) {
  const keys = [...new Set(runs.flatMap((run) => Object.keys(run.config ?? {})))].sort();
  return keys.map((key) => [key, runs.map((run) => run.config?.[key])])
    .filter(([, values]) => new Set(values.map((value) => JSON.stringify(value))).size > 1);
}

// {tag: {random: 0.2, solver: 1}} of all runs; where they differ, each with the names of its runs.
export function referencesOf(runs) {
  const merged = {};
  for (const tag of new Set(runs.flatMap((run) => Object.keys(run.references ?? {})))) {
    merged[tag] = {};
    for (const policy of ["random", "solver"]) {
      const having = runs.filter((run) => typeof run.references?.[tag]?.[policy] === "number");
      const values = [...new Set(having.map((run) => run.references[tag][policy]))];
      for (const value of values) {
        const names = having.filter((run) => run.references[tag][policy] === value).map((run) => visible(run.name));
        merged[tag][values.length === 1 ? policy : `${policy}, ${names.join(", ")}`] = value;
      }
    }
  }
  return merged;
}

// The values of several tables over the x of all of them.
function union(tables, name, axis) {
  const x = [...new Set(tables.flatMap((table) => axisOf(table, axis)))].sort((a, b) => a - b);
  const at = new Map(x.map((value, i) => [value, i]));
  const columns = tables.map((table) => {
    const values = new Array(x.length).fill(null);
    const column = table.column(name);
    if (column) axisOf(table, axis).forEach((value, i) => (values[at.get(value)] = column[i] ?? values[at.get(value)]));
    return values;
  });
  return { x, columns };
}

const known = (column) => column.filter((value) => value !== null);

// One chart of one metric over groups of runs; a group of one is a plain line.
export function overlaid(title, name, groups, tables, axis, options = {}) {
  const all = groups.flat().map((run) => tables[run.id]).filter(Boolean);
  if (!all.some((table) => table.column(name)?.some((value) => value !== null))) return null;
  const { x, columns } = union(groups.flat().map((run) => tables[run.id] ?? { steps: [], column: () => null }), name, axis);
  let first = 0;
  const series = groups.map((group, i) => {
    const own = columns.slice(first, (first += group.length));
    const perStep = x.map((_, k) => known(own.map((column) => column[k])));
    const ends = perStep.map((values) => (values.length ? student(values, options.range) : { mean: null, low: null, high: null }));
    const isBand = ends.some((end) => end.low !== null);
    return {
      label: labelOf(group), name, colour: i, values: ends.map((end) => end.mean),
      low: isBand ? ends.map((end) => end.low) : null, high: isBand ? ends.map((end) => end.high) : null,
    };
  }).filter((one) => known(one.values).length);
  return { ...options, title, x, series };
}

const labelOf = (group) => (group.length === 1 ? visible(group[0].name) : `${visible(group[0].name)} and ${group.length - 1} more`);

function useRuns(ids) {
  const [state, setState] = useState({});
  const key = ids.join("\n");
  useEffect(() => {
    let isWanted = true;
    Promise.all(key.split("\n").map((id) => get(runPath(id))))
      .then((runs) => isWanted && setState({ key, runs }))
      .catch((error) => isWanted && setState({ key, error }));
    return () => (isWanted = false);
  }, [key]);
  return state.key === key ? state : {};
}

function Table({ runs }) {
  return html`<div class="scroll" tabindex="0" role="region" aria-label="Runs"><table class="plain"><thead><tr><th scope="col">Run</th><th scope="col">State</th><th scope="col" class="number">Step</th><th scope="col">Validation, last</th><th scope="col">Best</th></tr></thead>
    <tbody>${runs.map((run) => html`<tr key=${run.id}><th scope="row"><a href=${link(["run", run.id])}>${visible(run.name)}</a></th><td><${State} state=${run.state} /></td>
      <td class="number">${run.step}</td>
      <td>${validationsOf(run).map(([tag, curve]) => html`<div key=${tag}>${visible(tag)} <b>${share(curve.success.at(-1))}</b> <small>${interval(curve.low?.at(-1), curve.high?.at(-1))}</small></div>`)}</td>
      <td>${validationsOf(run).map(([tag, curve]) => html`<div key=${tag}>${share(curve.best)} <small>step ${curve.best_step}</small></div>`)}</td></tr>`)}</tbody></table></div>`;
}

function Differences({ runs }) {
  const rows = differences(runs);
  return html`<details class="fold" open=${rows.length <= 12}><summary>${rows.length ? `Where the configurations differ, ${rows.length} keys` : "The configurations are the same"}</summary>
    ${rows.length > 0 && html`<div class="scroll" tabindex="0" role="region" aria-label="Differences"><table class="plain"><thead><tr><th scope="col">Key</th>${runs.map((run) => html`<th scope="col" key=${run.id}>${visible(run.name)}</th>`)}</tr></thead>
    <tbody>${rows.map(([key, values]) => html`<tr key=${key}><th scope="row"><code>${visible(key)}</code></th>${values.map((value) => html`<td>${value === undefined ? "–" : visible(written(value))}</td>`)}</tr>`)}</tbody></table></div>`}
  </details>`;
}

export function Compare({ ids, search }) {
  const { runs, error } = useRuns(ids);
  const { tables, error: seriesError } = useTables(ids);
  const axis = search.x ?? "step";
  const mode = search.as ?? "runs";
  const set = (change) => replace(["compare", ...ids], { x: search.x, as: search.as, ...change });
  const groups = useMemo(() => (runs ? (mode === "seeds" ? seedGroups(runs) : runs.map((run) => [run])) : []), [runs, mode]);
  const sections = useMemo(() => {
    const present = Object.values(tables);
    const tags = [...new Set(present.flatMap(tagsOf))].sort();
    return questions(tags, referencesOf(runs ?? [])).map((question) => ({
      ...question,
      plots: question.charts.flatMap((chart) => {
        const alone = chart.series.length === 1;
        return chart.series.filter((one) => !/^turn [2-9]/.test(one.label)).map((one) => overlaid(
          alone ? chart.title : `${chart.title}: ${one.label}`, one.name, groups, tables, axis,
          { range: chart.range, fromZero: chart.fromZero || chart.isStacked, lines: chart.lines }));
      }).filter((plot) => plot && (question.key === "learn" || question.key === "collapse" || plot.series.some((one) => one.values.some(Boolean)))),
    }));
  }, [tables, groups, axis]);
  const glossary = useGlossary(sections.flatMap((section) => section.plots.flatMap((plot) => plot.series.map((one) => one.name))));
  const names = useMemo(() => [...new Set(Object.values(tables).flatMap((table) => table.names))].sort(), [tables]);
  if (!runs) return error ? html`<${Problem} error=${error} />` : html`<${Wait} what="the runs" />`;
  return html`
    <${Crumbs} items=${[["Compare"]]} />
    <div class="page-head"><h1>Compare ${runs.length} runs</h1></div>
    <${Table} runs=${runs} />
    <${Differences} runs=${runs} />
    <${Problem} error=${seriesError} />
    <div class="toolbar">
      <${Choice} label="Over" options=${{ step: "Step", time: "Time", tokens: "Tokens" }} value=${axis} onChange=${(value) => set({ x: value === "step" ? "" : value })} />
      <${Choice} label="Draw" options=${{ runs: "Runs", seeds: "Seeds as bands" }} value=${mode} onChange=${(value) => set({ as: value === "runs" ? "" : value })} />
      <span class="hint muted">${mode === "seeds" ? "Mean of the runs that differ in seeds alone, with Student's 95 % interval over them." : "Drag to zoom, double-click to return."}</span></div>
    ${sections.map((section) => html`<${Question} key=${section.key} id=${section.key} title=${section.title} plots=${section.plots} glossary=${glossary} axis=${axis} />`)}
    <${AnyMetric} names=${names} axis=${axis} plotOf=${(name) => overlaid(name, name, groups, tables, axis)} />`;
}
