// What an evaluation measured: each policy on each environment, side by side.
import { interval, number, share, visible } from "app/format.js";
import { html } from "app/html.js";
import { tagsOf } from "app/questions.js";

const POLICIES = { sampled: "model, sampled", greedy: "model, greedy", random: "random", solver: "solver" };
const COLUMNS = [["score", "Score"], ["num_turns", "Turns"], ["num_actions", "Actions"], ["penalty", "Penalty"]];

export function Evaluation({ table }) {
  const last = (name) => table.column(name)?.findLast((value) => value !== null) ?? null;
  const rows = tagsOf(table).flatMap((tag) => Object.keys(POLICIES).filter((policy) => last(`${policy}/${tag}/success`) !== null)
    .map((policy) => [tag, policy]));
  return html`<div class="scroll" tabindex="0" role="region" aria-label="Results"><table class="plain results"><thead><tr><th scope="col">Environment</th><th scope="col">Policy</th><th scope="col" class="number">Success</th>
      ${COLUMNS.map(([key, label]) => html`<th scope="col" class="number" key=${key}>${label}</th>`)}<th scope="col" class="number">Valid replies</th><th scope="col" class="number">Tokens</th></tr></thead>
    <tbody>${rows.map(([tag, policy]) => html`<tr key=${`${tag}/${policy}`} data-policy=${policy}><td>${visible(tag)}</td><th scope="row">${POLICIES[policy]}</th>
      <td class="number"><b>${share(last(`${policy}/${tag}/success`))}</b> <small class="inline">${interval(last(`${policy}/${tag}/success_low`), last(`${policy}/${tag}/success_high`))}</small></td>
      ${COLUMNS.map(([key]) => html`<td class="number" key=${key}>${number(last(`${policy}/${tag}/${key}`))}</td>`)}
      <td class="number">${number(last(`${policy}/format/valid`))}</td><td class="number">${number(last(`${policy}/response_length`))}</td></tr>`)}</tbody></table></div>`;
}
