// The groups of a training step by the deviation of their rewards, and which of them each rollout filter keeps.
import { query, runPath, useGet } from "app/api.js";
import { colourOf } from "app/chart.js";
import { number, visible } from "app/format.js";
import { html } from "app/html.js";
import { Crumbs, Problem, Tabs, Wait } from "app/parts.js";
import { link, replace } from "app/router.js";
import { useTheme } from "app/theme_switch.js";

const percent = (value) => `${Math.round(100 * value)} %`;

const WIDTH = 560; // of the strips, in pixels
const HEIGHT = 40;

const cellWidth = (count) => Math.max(3, Math.min(20, WIDTH / count));

// The deviation of every group, the largest first: the head of the strips below it.
function Deviations({ groups }) {
  const theme = useTheme();
  const each = cellWidth(groups.length);
  const largest = Math.max(...groups.map((group) => group.reward_std)) || 1;
  return html`<svg width=${each * groups.length} height=${HEIGHT} role="img" aria-label=${`Deviations of ${groups.length} groups, from ${number(groups[0].reward_std)} down to ${number(groups.at(-1).reward_std)}`}>
    ${groups.map((group, i) => html`<rect key=${group.group} x=${i * each} y=${HEIGHT - (group.reward_std / largest) * HEIGHT} width=${each - 1} height=${(group.reward_std / largest) * HEIGHT} fill=${colourOf(theme, 1)} />`)}
    <line x1="0" x2=${each * groups.length} y1=${HEIGHT} y2=${HEIGHT} class="svg-line" /></svg>`;
}

// One filter: a full cell for each group it keeps, an empty one for each it drops.
function Strip({ groups, kept }) {
  const theme = useTheme();
  const each = cellWidth(groups.length);
  const colour = colourOf(theme, 0);
  return html`<svg width=${each * groups.length} height="16" role="img" aria-label=${`keeps groups ${groups.filter((group) => kept.has(group.group)).map((group) => group.group).join(", ") || "none"}`}>
    ${groups.map((group, i) => (kept.has(group.group)
      ? html`<rect key=${i} x=${i * each} y="1" width=${each - 1} height="14" fill=${colour} />`
      : html`<rect key=${i} x=${i * each} y="11" width=${each - 1} height="4" class="svg-dropped" />`))}</svg>`;
}

function Filters({ filters, groups }) {
  return html`<div class="scroll" tabindex="0" role="region" aria-label="Filters"><table class="filter-table"><thead><tr>
      <th scope="col">Filter</th><th scope="col" class="number">Kept</th><th scope="col"><${Deviations} groups=${groups} /><span class="strip-label">Groups, by the deviation of their rewards</span></th></tr></thead>
    <tbody>${filters.map((filter, i) => html`<tr key=${i} class=${filter.is_own ? "own" : ""}><th scope="row">${visible(filter.name)}${filter.is_own && html` <b>this run</b>`}</th>
      <td class="number">${filter.kept.length} <small class="inline">${percent(filter.kept_ratio)}</small></td>
      <td><${Strip} groups=${groups} kept=${new Set(filter.kept)} /></td></tr>`)}</tbody></table></div>`;
}

function Groups({ id, file, groups, own }) {
  return html`<div class="scroll" tabindex="0" role="region" aria-label="Groups"><table class="filter-table"><thead><tr><th scope="col">Group</th><th scope="col">Environment</th><th scope="col" class="number">Deviation</th>
      ${own && html`<th scope="col">This run</th>`}<th scope="col">Rewards of its episodes</th></tr></thead>
    <tbody>${groups.map((group) => html`<tr key=${group.group}><th scope="row"><a href=${link(["run", id, "group", file, group.group])}>Group ${group.group}</a></th>
      <td>${visible(group.tag)}</td><td class="number">${number(group.reward_std)}</td>
      ${own && html`<td>${own.kept.includes(group.group) ? html`<span class="kept">■ kept</span>` : html`<span class="muted">□ dropped</span>`}</td>`}
      <td class="rewards">${group.rewards.map((reward) => number(reward, 2)).join("   ")}</td></tr>`)}</tbody></table></div>`;
}

export function Filter({ id, search }) {
  const run = useGet(runPath(id));
  const { data, stale, error } = useGet(runPath(id) + "/filter" + query({ step: search.step }));
  const answer = data ?? (error ? undefined : stale);
  const go = (step) => replace(["run", id, "filter"], { step });
  const at = answer?.steps.indexOf(answer.step);
  const groups = answer?.groups.toSorted((a, b) => b.reward_std - a.reward_std || a.group - b.group);
  return html`<${Crumbs} items=${[[run.data?.name ?? id, ["run", id]], ["Filter"]]} />
    <div class="page-head"><h1>Filter</h1><${Tabs} id=${id} kind=${run.data?.kind} current="filter" /></div>
    <${Problem} error=${error} />
    ${!answer ? !error && html`<${Wait} what="the groups" />` : html`
      <div class="filters"><label>Step <select value=${answer.step} onChange=${(event) => go(event.target.value)}>
          ${answer.steps.map((step) => html`<option value=${step} key=${step}>${step}</option>`)}</select></label>
        <button type="button" disabled=${at <= 0} onClick=${() => go(answer.steps[at - 1])}>Earlier</button>
        <button type="button" disabled=${at >= answer.steps.length - 1} onClick=${() => go(answer.steps[at + 1])}>Later</button>
        <span class="muted">${groups.length} groups${answer.num_incomplete ? `, ${answer.num_incomplete} more are incomplete and never trained` : ""}</span></div>
      ${groups.length === 0 ? html`<p class="empty">No group of this step is complete.</p>` : html`
        <${Filters} filters=${answer.filters} groups=${groups} />
        <${Groups} id=${id} file=${answer.file} groups=${groups} own=${answer.filters.find((filter) => filter.is_own)} />`}`}`;
}
