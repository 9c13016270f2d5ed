// Small parts that several pages share.
import { number, visible } from "app/format.js";
import { html, useState } from "app/html.js";
import { isReport } from "app/report.js";
import { link } from "app/router.js";

const STATES = {
  running: ["●", "running"], finished: ["✓", "finished"], killed: ["✕", "killed"], failed: ["✕", "failed"],
  early_stopped: ["■", "stopped early"], interrupted: ["❚❚", "interrupted"], unknown: ["?", "unknown"],
};

export function State({ state }) {
  const [sign, name] = STATES[state] ?? STATES.unknown;
  return html`<span class=${`state state-${state}`}><span class="state-sign" aria-hidden="true">${sign}</span>${name}</span>`;
}

const SEVERITIES = { alarm: ["▲", "alarm"], warning: ["◆", "warning"], tip: ["●", "tip"], healthy: ["✓", "healthy"] };

export function AdvisoryBadge({ advisory }) {
  const [sign, name] = SEVERITIES[advisory.severity] ?? SEVERITIES.tip;
  return html`<span class=${`badge badge-${advisory.severity}`} title=${visible(advisory.evidence)}>
    <span aria-hidden="true">${sign}</span><span class="sr-only">${name}: </span>${visible(advisory.title)}</span>`;
}

// The way to an episode, or to a group, that shows what an advisory is about.
function Exhibit({ id, exhibit }) {
  const { file, index, group, member, why } = exhibit;
  const [rollout, step] = file.split("_step_");
  const name = `${rollout === "val" ? "Validation" : "Step"} ${step}, group ${group}${member === null ? "" : `, member ${member}`}`;
  const parts = member === null ? ["run", id, "group", file, group] : ["run", id, "episode", file, index];
  return html`<li><a href=${link(parts)}>${name}</a>: ${visible(why)}</li>`;
}

// A sentence with `code` in it.
export const prose = (text) => visible(text).split(/`([^`]+)`/).map((part, i) => (i % 2 ? html`<code>${part}</code>` : part));

export function AdvisoryCard({ advisory, id }) {
  const [sign, name] = SEVERITIES[advisory.severity] ?? SEVERITIES.tip;
  const [first, last] = advisory.steps ?? [];
  const steps = first === undefined || first === null ? "" : first === last ? `step ${first}` : `steps ${first} to ${last}`;
  const certainty = typeof advisory.certainty === "number" ? `${Math.round(advisory.certainty * 100)} % certain` : "";
  return html`<li class=${`card advisory badge-${advisory.severity}`}>
    <h3><span aria-hidden="true">${sign}</span> ${visible(advisory.title)}
      <small>${[name, certainty, steps].filter(Boolean).join(" · ")}</small></h3>
    <p>${prose(advisory.evidence)}</p>
    ${advisory.remedy && html`<p class="remedy">${prose(advisory.remedy)}</p>`}
    ${advisory.episodes?.length > 0 && html`<ul class="exhibits" aria-label="Episodes to look at">${advisory.episodes.map((exhibit) => html`
      <${Exhibit} key=${exhibit.file + exhibit.index} id=${id} exhibit=${exhibit} />`)}</ul>`}
  </li>`;
}

const WHOLE = 4000;

// Text of a model or an environment: a text node, hidden characters written out, long ones cut until asked for.
export function Text({ text, as = "pre", name = "text", isProse }) {
  const [isWhole, setWhole] = useState(false);
  const full = String(text ?? "");
  const isCut = full.length > WHOLE && !isWhole;
  const shown = visible(isCut ? full.slice(0, WHOLE) : full);
  return html`<${as} class=${`text text-${name}`} dir="ltr">${isProse ? prose(shown) : shown}${isCut && html`<button type="button" class="quiet" onClick=${() => setWhole(true)}>
    … all ${number(full.length)} characters</button>`}</${as}>`;
}

export function Problem({ error }) {
  return error ? html`<p class="problem" role="alert">${visible(error.message ?? error)}</p>` : null;
}

export function Wait({ what }) {
  return html`<p class="muted" role="status">Reading ${what} …</p>`;
}

export function Crumbs({ items, start = ["Runs", ["runs"]] }) {
  return html`<nav class="crumbs" aria-label="Where you are">
    ${[start, ...items].map(([label, parts], i) => html`${i > 0 && html`<span aria-hidden="true">/</span>`}${parts ? html`<a href=${link(parts)}>${visible(label)}</a>` : html`<span aria-current="page">${visible(label)}</span>`}`)}
  </nav>`;
}

const TABS = [["", "Charts"], ["episodes", "Episodes"], ["filter", "Filter"], ["gradients", "Gradients"], ["play", "Play"]];
const TABS_OF = { evaluation: [["", "Results"], ["episodes", "Episodes"], ["play", "Play"]], sft: [["", "Charts"]] };

// The pages of one run.
export function Tabs({ id, kind, current }) {
  return html`<nav class="tabs" aria-label="Parts of the run">${(TABS_OF[kind] ?? TABS).filter(([view]) => !(isReport && view === "play")).map(([view, name]) => html`
    <a key=${name} href=${link(view ? ["run", id, view] : ["run", id])} aria-current=${view === current ? "page" : undefined}>${name}</a>`)}</nav>`;
}

// A few choices of which one holds.
export function Choice({ label, options, value, onChange }) {
  return html`<div class="choice" role="group" aria-label=${label}>
    <span class="choice-label">${label}</span>
    ${Object.entries(options).map(([key, name]) => html`
      <button type="button" key=${key} aria-pressed=${key === value} onClick=${() => onChange(key)}>${name}</button>`)}
  </div>`;
}
