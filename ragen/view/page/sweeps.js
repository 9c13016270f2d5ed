// Sweeps, studies and searches: every value with its seeds, their intervals, and how the runs ended.
import { useGet, useLive, useThrottled } from "app/api.js";
import { Chart, colourOf } from "app/chart.js";
import { ago, duration, interval, number, share, visible } from "app/format.js";
import { html, useMemo, useState } from "app/html.js";
import { Crumbs, Problem, State, Text, Wait } from "app/parts.js";
import { link } from "app/router.js";
import { student } from "app/statistics.js";
import { useTheme } from "app/theme_switch.js";

const WIDTH = 240;
const STATUSES = {
  success: ["✓", "to its end", "solved"], early_stopped: ["■", "stopped early", "stopped"], fail: ["✕", "failed", "other"],
};
const MOST_COMPARED = 24;

const sweepPath = (id) => `/api/sweeps/${encodeURIComponent(id)}`;
const signed = (value) => (value > 0 ? `+${share(value)}` : share(value).replace("-", "−"));

export function Sweeps() {
  const { data, error, reload } = useGet("/api/sweeps");
  const soon = useThrottled(reload, 2000);
  useLive(null, soon);
  if (!data) return error ? html`<${Problem} error=${error} />` : html`<${Wait} what="the sweeps" />`;
  return html`<div class="page-head"><h1>Sweeps</h1><span class="muted">${data.sweeps.length}</span></div>
    <${Problem} error=${error} />
    ${data.sweeps.length === 0 ? html`<p class="empty">There is no sweep, study or search here. Their records lie below logs, so give that folder, too: <code>ragen view logs model_saving</code></p>` : html`
    <div class="scroll" tabindex="0" role="region" aria-label="Sweeps"><table class="plain results"><thead><tr><th scope="col">Sweep</th><th scope="col" class="number">Runs</th><th scope="col" class="number">Ended</th>
      <th scope="col" class="number">Stopped early</th><th scope="col" class="number">Failed</th><th scope="col" class="number">Updated</th></tr></thead>
      <tbody>${data.sweeps.map((sweep) => html`<tr key=${sweep.id}><th scope="row" class="run-name"><a href=${link(["sweep", sweep.id])}>${visible(sweep.name)}</a><small>${visible(sweep.folder)}</small></th>
        <td class="number">${sweep.num_runs || "–"}</td><td class="number">${sweep.num_ended}</td><td class="number">${sweep.num_early_stopped}</td><td class="number">${sweep.num_failed}</td>
        <td class="number">${ago(sweep.updated_at * 1000)}</td></tr>`)}</tbody></table></div>`}`;
}

// From 0 to 1: a dot per seed, the mean as a line, its interval as a band.
function Strip({ point }) {
  const theme = useTheme();
  const x = (value) => 6 + value * (WIDTH - 12);
  const colour = colourOf(theme, 0);
  const seeds = point.runs.filter((run) => run.final);
  const { final } = point;
  const described = seeds.map((run) => `seed ${run.seed} ${share(run.final.mean)}${run.counts ? "" : ", not counted"}`).join("; ");
  return html`<svg width=${WIDTH} height="26" role="img" aria-label=${described || "no validation"}>
    <line x1=${x(0)} x2=${x(1)} y1="13" y2="13" class="svg-line" />
    ${[0, 0.5, 1].map((tick) => html`<line key=${tick} x1=${x(tick)} x2=${x(tick)} y1="10" y2="16" class="svg-line" />`)}
    ${final?.low !== null && final?.low !== undefined && html`<rect x=${x(final.low)} y="8" width=${Math.max(1, x(final.high) - x(final.low))} height="10" fill=${colour} opacity="0.25" />`}
    ${final && html`<line x1=${x(final.mean)} x2=${x(final.mean)} y1="3" y2="23" stroke=${colour} stroke-width="2.5" />`}
    ${seeds.map((run) => html`<g key=${run.name}><title>${`seed ${run.seed}: ${share(run.final.mean)}`}</title>${run.status === "success"
      ? html`<circle cx=${x(run.final.mean)} cy="13" r="4" fill=${colourOf(theme, 1)} stroke=${colourOf(theme, 6)} stroke-width="0.8" />`
      : html`<path d=${`M${x(run.final.mean) - 4} 9l8 8m0 -8l-8 8`} stroke=${colourOf(theme, 3)} stroke-width="2.5" fill="none" />`}</g>`)}
  </svg>`;
}

function Marks({ point }) {
  return html`${point.num_collapsed > 0 && html` <span class="badge badge-alarm"><span aria-hidden="true">■</span>failed regime: ${point.num_collapsed} of ${point.num_counted} collapsed, ${share(point.collapse.mean)} ${interval(point.collapse.low, point.collapse.high)}</span>`}
    ${point.has_failed_runs && html` <span class="badge badge-warning"><span aria-hidden="true">✕</span>runs failed</span>`}`;
}

function Estimate({ estimate, write = share }) {
  if (!estimate) return "–";
  return html`<b>${write(estimate.mean)}</b> <small>${estimate.low === null ? "" : `[${write(estimate.low)}, ${write(estimate.high)}]`}</small>`;
}

function Points({ sweep }) {
  const { points, differences } = sweep;
  const [base, setBase] = useState(0);
  return html`<div class="scroll" tabindex="0" role="region" aria-label="Values"><table class="plain results points"><thead><tr><th scope="col">Value</th><th scope="col">Last validation, from 0 to 1</th>
      <th scope="col" class="number">Last</th><th scope="col" class="number">First</th><th scope="col" class="number">Best</th>
      <th scope="col" class="number"><label>Less <select value=${base} onChange=${(event) => setBase(Number(event.target.value))}>
        ${points.slice(0, differences.length).map((point, i) => html`<option value=${i} key=${i}>${visible(point.value)}</option>`)}</select></label></th><th scope="col">How the runs ended</th></tr></thead>
    <tbody>${points.map((point, i) => html`<tr key=${point.value} data-value=${point.value}><th scope="row">${visible(point.value)} <${Marks} point=${point} /></th><td><${Strip} point=${point} /></td>
      <td class="number"><${Estimate} estimate=${point.final} /></td><td class="number"><${Estimate} estimate=${point.first} /></td><td class="number"><${Estimate} estimate=${point.best} /></td>
      <td class="number difference">${i === base ? html`<span class="muted">–</span>` : html`<${Estimate} estimate=${differences[i]?.[base]} write=${signed} />`}</td>
      <td>${visible(point.endings)}</td></tr>`)}</tbody></table></div>`;
}

// The validations of a value step by step: the mean over its seeds that count, and Student's interval where none collapsed.
function curveOf(point, x) {
  const runs = point.runs.filter((run) => run.counts);
  const at = runs.map((run) => new Map(run.steps.map((step, i) => [step, run.successes[i]])));
  const ends = x.map((step) => {
    const values = at.map((one) => one.get(step)).filter((value) => value !== undefined);
    return values.length ? student(values, [0, 1]) : { mean: null, low: null, high: null };
  });
  const isBand = point.num_collapsed === 0 && ends.some((end) => end.low !== null);
  return {
    label: visible(point.value), values: ends.map((end) => end.mean),
    low: isBand ? ends.map((end) => end.low) : null, high: isBand ? ends.map((end) => end.high) : null,
  };
}

function Curves({ points }) {
  const plot = useMemo(() => {
    const shown = points.filter((point) => point.num_counted > 0);
    const x = [...new Set(shown.flatMap((point) => point.runs.filter((run) => run.counts).flatMap((run) => run.steps)))].sort((a, b) => a - b);
    return { title: "Validation success", x, range: [0, 1], isWide: true, series: shown.map((point) => curveOf(point, x)) };
  }, [points]);
  if (plot.x.length < 2) return null;
  return html`<div class="charts"><${Chart} plot=${plot} height=${240} notes=${["Mean over the seeds of a value; the band is Student's 95 % interval over them."]} /></div>`;
}

function RunStatus({ run }) {
  const [sign, name, kind] = STATUSES[run.status] ?? STATUSES.fail;
  return html`<span class=${`status status-${kind}`}><span aria-hidden="true">${sign}</span> ${name}</span>`;
}

const RunLink = ({ run }) => (run.run_id ? html`<a href=${link(["run", run.run_id])}>${visible(run.name)}</a>` : html`${visible(run.name)} <small>its run directory is not below the given folders</small>`);

function SweptRuns({ points }) {
  const rows = points.flatMap((point) => point.runs.map((run) => ({ point, run })));
  const hasScore = rows.some(({ run }) => run.score);
  return html`<div class="scroll" tabindex="0" role="region" aria-label="Runs"><table class="plain results"><thead><tr><th scope="col">Run</th><th scope="col">Value</th><th scope="col" class="number">Seed</th><th scope="col">Ended</th>
      <th scope="col" class="number">Last</th><th scope="col" class="number">Best</th>${hasScore && html`<th scope="col" class="number">Score</th>`}<th scope="col" class="number">Time</th><th scope="col">On</th></tr></thead>
    <tbody>${rows.map(({ point, run }) => html`<tr key=${run.name} data-status=${run.status}><th scope="row" class="run-name"><${RunLink} run=${run} /></th><td>${visible(point.value)}</td><td class="number">${run.seed}</td>
      <td><${RunStatus} run=${run} />${run.stop && html`<small>${visible(run.stop)}</small>`}${run.last_lines.map((line) => html`<small class="last-line">${visible(line)}</small>`)}</td>
      <td class="number">${run.final ? html`<b>${share(run.final.mean)}</b> <small>${interval(run.final.low, run.final.high)}</small>` : "–"}</td>
      <td class="number">${run.best === null ? "–" : html`${share(run.best)} <small>step ${run.best_step}</small>`}</td>
      ${hasScore && html`<td class="number">${visible(run.score ?? "–")}</td>`}<td class="number">${duration(run.wall_time)}</td><td>${visible(run.device)}</td></tr>`)}</tbody></table></div>`;
}

// What `ragen scaling` has written: its cells, names of runs as links.
function ScalingTable({ table }) {
  return html`<div class="scroll" tabindex="0" role="region" aria-label="Scaling"><table class="plain results"><thead><tr>${table.columns.map((column) => html`<th scope="col" key=${column}>${visible(column)}</th>`)}</tr></thead>
    <tbody>${table.rows.map((row, i) => html`<tr key=${i}>${row.map((cell, k) => html`<td key=${k}>${Object.hasOwn(table.runs, cell) ? html`<a href=${link(["run", table.runs[cell]])}>${visible(cell)}</a>` : visible(cell)}</td>`)}</tr>`)}</tbody></table></div>`;
}

function Waiting({ runs }) {
  if (runs.length === 0) return null;
  return html`<h2 class="section">Not ended</h2><ul class="waiting">${runs.map((run) => html`<li key=${run.name}><${RunLink} run=${run} /> <${State} state=${run.state} /></li>`)}</ul>`;
}

export function Sweep({ id }) {
  const { data: sweep, error, reload } = useGet(sweepPath(id));
  const soon = useThrottled(reload, 2000);
  useLive(null, soon);
  const crumbs = html`<${Crumbs} start=${["Sweeps", ["sweeps"]]} items=${[[sweep?.name ?? id]]} />`;
  if (!sweep) return html`${crumbs}${error ? html`<${Problem} error=${error} />` : html`<${Wait} what="the sweep" />`}`;
  const runs = sweep.points.flatMap((point) => point.runs);
  const shown = runs.map((run) => run.run_id).filter(Boolean);
  const count = (status) => runs.filter((run) => run.status === status).length;
  return html`${crumbs}
    <div class="page-head"><h1>${visible(sweep.name)}</h1>
      ${shown.length > 1 && shown.length <= MOST_COMPARED && html`<nav class="tabs" aria-label="More"><a href=${link(["compare", ...shown], { as: "seeds" })}>Compare all charts</a></nav>`}</div>
    ${sweep.table && html`<${ScalingTable} table=${sweep.table} />`}
    ${!sweep.table && html`<dl class="facts">${[["Values", sweep.points.length], ["Runs", runs.length + sweep.waiting.length], ["To their end", count("success")], ["Stopped early", count("early_stopped")], ["Failed", count("fail")], ["Not ended", sweep.waiting.length]]
      .map(([label, value]) => html`<div class="fact" key=${label} data-fact=${label}><dt>${label}</dt><dd>${number(value)}</dd></div>`)}
      <div class="fact"><dt>Records</dt><dd><code>${visible(sweep.folder)}</code></dd></div></dl>`}
    <${Problem} error=${error} />
    ${sweep.points.length > 0 && html`<${Points} sweep=${sweep} />
      <p class="muted hint below">Success in validation, mean [${visible(sweep.interval)}]. ${["✕ is a run that stopped early; a value with one is a failed regime: its share has Wilson's interval, its means are those of the other runs and have none.", "Runs that failed do not count.", "Best is chosen after the fact, so it flatters every value.", "Differences are taken seed by seed."].join(" ")}</p>
      <${Curves} points=${sweep.points} />
      <h2 class="section">Runs</h2><${SweptRuns} points=${sweep.points} />`}
    <${Waiting} runs=${sweep.waiting} />
    ${sweep.report && html`<details class="fold"><summary>Report, as it was written</summary><${Text} text=${sweep.report} name="report" /></details>`}`;
}
