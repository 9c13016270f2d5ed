// Gradient analyses: what each bucket of groups measured, with the noise of its norm, and how it changed over steps.
import { runPath, useGet } from "app/api.js";
import { Chart, colourOf } from "app/chart.js";
import { notesOf, useGlossary } from "app/charts.js";
import { number } from "app/format.js";
import { html, useMemo } from "app/html.js";
import { Choice, Crumbs, Problem, Tabs, Wait } from "app/parts.js";
import { replace } from "app/router.js";
import { useTheme } from "app/theme_switch.js";

const SOURCES = { grad_norm: "Kept groups", grad_norm_prefilter: "All groups" };
const PARTS = ["task", "entropy", "kl"];
const named = (bucket) => (bucket === "all" ? "all" : bucket.replace("bucket_", "bucket "));

// The norm of each bucket at one step: a dot, the interval of its noise as a line.
function Buckets({ buckets, part }) {
  const theme = useTheme();
  const rows = Object.entries(buckets).map(([bucket, values]) => ({
    bucket, norm: values[part], low: values[`norm_low/${part}`], high: values[`norm_high/${part}`],
    debiased: values[`norm_debiased/${part}`], cosine: values[`split_half_cosine/${part}`],
    std: values.reward_std_mean, samples: values.sample_count,
  })).filter((row) => row.norm !== null && row.norm !== undefined);
  if (rows.length === 0) return null;
  const largest = Math.max(...rows.flatMap((row) => [row.norm, row.high ?? 0])) || 1;
  const x = (value) => 4 + (value / largest) * 232;
  const dot = colourOf(theme, 0);
  return html`<div class="scroll" tabindex="0" role="region" aria-label="Buckets"><table class="plain gradients"><thead><tr><th scope="col">Bucket</th><th scope="col" class="number">Reward deviation</th><th scope="col" class="number">Samples</th>
      <th scope="col" class="number">Norm</th><th scope="col">Norm, and where 95 % of such batches fall</th><th scope="col" class="number">Without noise</th><th scope="col" class="number">Halves agree</th></tr></thead>
    <tbody>${rows.map((row) => html`<tr key=${row.bucket}><th scope="row">${named(row.bucket)}</th><td class="number">${number(row.std)}</td><td class="number">${number(row.samples)}</td>
      <td class="number">${number(row.norm)}</td>
      <td><svg width="240" height="16" role="img" aria-label=${`norm ${number(row.norm)}${row.low === undefined || row.low === null ? "" : `, from ${number(row.low)} to ${number(row.high)}`}`}>
        <line x1="4" y1="8" x2="236" y2="8" class="svg-line" />
        ${row.low !== undefined && row.low !== null && html`<line x1=${x(row.low)} x2=${x(row.high)} y1="8" y2="8" stroke=${dot} stroke-width="5" opacity="0.35" />`}
        <circle cx=${x(row.norm)} cy="8" r="4" fill=${dot} /></svg></td>
      <td class="number">${number(row.debiased)}</td><td class="number">${number(row.cosine)}</td></tr>`)}</tbody></table></div>`;
}

// One quantity of every bucket over the steps of the analyses.
function plotOf(title, analyses, source, key) {
  const buckets = Object.keys(analyses.at(-1).buckets);
  const series = buckets.map((bucket, colour) => ({
    label: named(bucket), name: `${source}/${bucket}/${key}`, colour, values: analyses.map((one) => one.buckets[bucket]?.[key] ?? null),
  })).filter((one) => one.values.some((value) => value !== null));
  return series.length ? { title, x: analyses.map((one) => one.step), series, fromZero: true } : null;
}

// The norms of the terms of the loss beside each other, over all samples.
function sharesOf(analyses, source) {
  const series = PARTS.map((part, colour) => ({ label: part, name: `${source}/all/${part}`, colour, values: analyses.map((one) => one.buckets.all?.[part] ?? null) }))
    .filter((one) => one.values.some((value) => value));
  return series.length ? { title: "Norm of each term of the loss, all samples", x: analyses.map((one) => one.step), series, fromZero: true } : null;
}

export function Gradients({ id, search }) {
  const run = useGet(runPath(id));
  const { data, error } = useGet(runPath(id) + "/gradients");
  const sources = Object.keys(SOURCES).filter((source) => data?.analyses[source]?.length);
  const source = sources.includes(search.of) ? search.of : sources[0];
  const part = PARTS.includes(search.part) ? search.part : "task";
  const analyses = data?.analyses[source] ?? [];
  const at = Math.max(0, search.step ? analyses.findIndex((one) => String(one.step) === search.step) : analyses.length - 1);
  const set = (change) => replace(["run", id, "gradients"], { of: search.of, part: search.part, step: search.step, ...change });
  const plots = useMemo(() => (analyses.length ? [
    plotOf(`Norm of ${part}`, analyses, source, part), plotOf(`Norm of ${part} without noise`, analyses, source, `norm_debiased/${part}`),
    plotOf(`Agreement of two halves, ${part}`, analyses, source, `split_half_cosine/${part}`), sharesOf(analyses, source),
  ].filter(Boolean) : []), [data, source, part]);
  const glossary = useGlossary(plots.flatMap((plot) => plot.series.map((one) => one.name)));
  return html`<${Crumbs} items=${[[run.data?.name ?? id, ["run", id]], ["Gradients"]]} />
    <div class="page-head"><h1>Gradients</h1><${Tabs} id=${id} kind=${run.data?.kind} current="gradients" /></div>
    <${Problem} error=${error} />
    ${!data && !error && html`<${Wait} what="the analyses" />`}
    ${data && analyses.length === 0 && html`<p class="empty">This run has made no gradient analysis. trainer.gradient_analysis_mode=true makes them.</p>`}
    ${analyses.length > 0 && html`
      <div class="toolbar">${sources.length > 1 && html`<${Choice} label="Of" options=${Object.fromEntries(sources.map((name) => [name, SOURCES[name]]))} value=${source} onChange=${(value) => set({ of: value })} />`}
        <${Choice} label="Term" options=${Object.fromEntries(PARTS.map((name) => [name, name]))} value=${part} onChange=${(value) => set({ part: value })} />
        <label class="choice"><span class="choice-label">Step</span><select value=${analyses[at].step} onChange=${(event) => set({ step: event.target.value })}>
          ${analyses.map((one) => html`<option value=${one.step} key=${one.step}>${one.step}</option>`)}</select></label></div>
      <${Buckets} buckets=${analyses[at].buckets} part=${part} />
      <div class="charts">${plots.map((plot) => html`<${Chart} key=${plot.title} plot=${plot} notes=${notesOf(plot, glossary).slice(0, 1)} syncKey="gradients" />`)}</div>`}`;
}
