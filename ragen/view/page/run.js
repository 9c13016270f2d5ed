// One run: its state and advisories, the charts by question, its configuration.
import { runPath, useGet, useLive, useThrottled } from "app/api.js";
import { AnyMetric, Question, filled, useGlossary } from "app/charts.js";
import { Evaluation } from "app/evaluation.js";
import { ago, duration, interval, number, share, validationsOf, visible } from "app/format.js";
import { html, useMemo, useState } from "app/html.js";
import { AdvisoryCard, Choice, Crumbs, Problem, State, Tabs, Text, Wait, prose } from "app/parts.js";
import { present, questions, tagsOf } from "app/questions.js";
import { replace } from "app/router.js";
import { useTables } from "app/series.js";

function Fact({ label, children }) {
  return html`<div class="fact" data-fact=${label}><dt>${label}</dt><dd>${children}</dd></div>`;
}

function Facts({ run }) {
  const tags = validationsOf(run);
  return html`<dl class="facts">
    <${Fact} label="State"><${State} state=${run.state} /></${Fact}>
    ${run.kind !== "evaluation" && html`<${Fact} label="Step">${run.step ?? "–"}${run.total_steps ? html`<span class="muted"> of ${run.total_steps}</span>` : ""}</${Fact}>`}
    ${tags.map(([tag, curve]) => html`<${Fact} label=${`Validation, ${visible(tag)}`} key=${tag}>${share(curve.success.at(-1))}
      <small> ${interval(curve.low?.at(-1), curve.high?.at(-1))}${curve.steps.length > 1 ? `, best ${share(curve.best)} at step ${curve.best_step}` : ""}</small></${Fact}>`)}
    ${run.seconds_per_step && html`<${Fact} label="Speed">${duration(run.seconds_per_step)} a step</${Fact}>`}
    ${run.state === "running" && html`<${Fact} label="Left">${duration(run.seconds_left)}</${Fact}>`}
    <${Fact} label="Updated">${ago(run.updated_at)}</${Fact}>
    ${run.model && html`<${Fact} label="Model">${visible(run.model)}</${Fact}>`}
    ${run.estimator && run.kind !== "evaluation" && html`<${Fact} label="Estimator">${visible(run.estimator)}</${Fact}>`}
    <${Fact} label="Folder"><code>${visible(run.folder)}</code></${Fact}>
  </dl>`;
}

function Cards({ run }) {
  const advisories = run.advisories ?? [];
  const cause = run.reason?.includes(run.cause) ? "" : run.cause; // reasons of earlier versions do not name it
  const ending = [run.reason, cause, run.status?.remedy].filter(Boolean);
  if (advisories.length === 0 && ending.length === 0) return null;
  return html`<ul class="cards" aria-label="How the run does">
    ${ending.length > 0 && html`<li class="card ending"><h3>How it ended</h3>${ending.map((text) => html`<${Text} as="p" text=${text} name="ending" isProse />`)}</li>`}
    ${advisories.map((advisory) => html`<${AdvisoryCard} advisory=${advisory} id=${run.id} key=${advisory.rule} />`)}
  </ul>`;
}

function Preflight({ preflight, isEvaluation }) {
  const tags = Object.entries(preflight?.tags ?? {});
  if (tags.length === 0) return null;
  return html`<details class="fold"><summary>What pays${isEvaluation ? "" : ", before the first step"}</summary>
    ${tags.map(([tag, { policies }]) => html`<table class="plain" key=${tag}><caption>${visible(tag)}</caption>
      <thead><tr><th scope="col">Policy</th><th scope="col" class="number">Success</th><th scope="col" class="number">Total reward</th><th scope="col" class="number">Turns</th><th scope="col" class="number">Episodes</th></tr></thead>
      <tbody>${Object.entries(policies ?? {}).map(([name, row]) => html`<tr key=${name}><th scope="row">${visible(name)}</th>
        <td class="number">${share(row.success)}</td><td class="number">${number(row.total)}</td><td class="number">${number(row.turns)}</td><td class="number">${number(row.episodes)}</td></tr>`)}</tbody></table>`)}
    ${[...(preflight.warnings ?? []), ...(preflight.notes ?? [])].map((note) => html`<p>${prose(typeof note === "string" ? note : JSON.stringify(note))}</p>`)}
  </details>`;
}

function RunCard({ sections }) {
  if (!sections?.length) return null;
  return html`<details class="fold run-card"><summary>Run card</summary>
    ${sections.map(({ title, rows }) => html`<table class="plain" key=${title}><caption>${visible(title)}</caption>
      <tbody>${rows.map(([name, text]) => html`<tr key=${name}><th scope="row">${visible(name)}</th><td>${visible(text)}</td></tr>`)}</tbody></table>`)}
  </details>`;
}

export const written = (value) => (typeof value === "string" ? value : JSON.stringify(value));

function Configuration({ config }) {
  const [text, setText] = useState("");
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  const entries = Object.entries(config ?? {});
  if (entries.length === 0) return null;
  const found = entries.filter(([key, value]) => words.every((word) => `${key} ${written(value)}`.toLowerCase().includes(word)));
  return html`<details class="fold config"><summary>Configuration, ${entries.length} keys</summary>
    <div class="filters"><label>Search <input type="search" value=${text} onInput=${(event) => setText(event.target.value)} placeholder="key or value" /></label>
      <span class="muted">${words.length ? `${found.length} found` : ""}</span></div>
    <dl class="keys">${found.map(([key, value]) => html`<div key=${key}><dt>${visible(key)}</dt><dd>${visible(written(value))}</dd></div>`)}</dl>
  </details>`;
}

export function Run({ id, search }) {
  const { data: run, error, reload } = useGet(runPath(id));
  const soon = useThrottled(reload, 1000);
  useLive([id], soon);
  const { tables, error: seriesError, isLoaded } = useTables([id]);
  const axis = search.x ?? "step";
  const table = tables[id];
  const groups = useMemo(() => {
    if (!table) return [];
    return questions(tagsOf(table), run?.references).map((group) => ({
      ...group,
      plots: group.charts.map((chart) => present(chart, table)).filter(Boolean).map((chart) => filled(chart, table, axis)),
    }));
  }, [table, axis, JSON.stringify(run?.references)]);
  const glossary = useGlossary(groups.flatMap((group) => group.plots.flatMap((plot) => plot.series.map((one) => one.name))));
  const axes = { step: "Step", ...(table?.column("timing_s/total") && { time: "Time" }), ...(table?.column("perf/total_num_tokens") && { tokens: "Tokens" }) };
  const isEvaluation = run?.kind === "evaluation";
  if (!run) return error ? html`<${Problem} error=${error} />` : html`<${Wait} what="the run" />`;
  return html`
    <${Crumbs} items=${[[run.name]]} />
    <div class="page-head"><h1>${visible(run.name)}</h1><${Tabs} id=${id} kind=${run.kind} current="" /></div>
    <${Facts} run=${run} />
    <${Cards} run=${run} />
    <${Problem} error=${error ?? seriesError} />
    ${isEvaluation && table && html`<${Evaluation} table=${table} />`}
    ${!isEvaluation && table && table.steps.length > 0 && html`
      <div class="toolbar"><${Choice} label="Over" options=${axes} value=${axis} onChange=${(value) => replace(["run", id], { x: value === "step" ? "" : value })} />
        <nav class="jumps" aria-label="Questions">${groups.filter((group) => group.plots.length).map((group) => html`
          <button type="button" class="quiet" key=${group.key} onClick=${() => document.getElementById(`q-${group.key}`)?.scrollIntoView()}>${group.title}</button>`)}</nav>
        <span class="hint muted">Drag to zoom, double-click to return.</span></div>
      ${groups.map((group) => html`<${Question} key=${group.key} id=${group.key} title=${group.title} plots=${group.plots} glossary=${glossary} axis=${axis} />`)}
      <${AnyMetric} names=${table.names} axis=${axis} plotOf=${(name) => filled({ title: name, series: [{ label: "value", name }] }, table, axis)} />`}
    ${isLoaded && table?.steps.length === 0 && html`<p class="empty">No step is logged yet.</p>`}
    <${Preflight} preflight=${run.preflight} isEvaluation=${isEvaluation} />
    <${RunCard} sections=${run.run_card} />
    <${Configuration} config=${run.config} />`;
}
