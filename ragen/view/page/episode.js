// One episode, turn by turn, with its board as a film.
import { query, runPath, useGet } from "app/api.js";
import { Board } from "app/board.js";
import { Status } from "app/episodes.js";
import { FilmControls, useFilm } from "app/film.js";
import { number, visible } from "app/format.js";
import { html, useEffect, useRef } from "app/html.js";
import { Choice, Crumbs, Problem, Text, Wait } from "app/parts.js";
import { isReport } from "app/report.js";
import { link, replace } from "app/router.js";
import { COLOURINGS, Scale, Tokens, fits, fullAdvantage } from "app/tokens.js";

// One frame before each turn and one for the end.
export const framesOf = (episode) => [...episode.turns.map((turn) => turn.frame), episode.final_frame];

export function Actions({ turn }) {
  const executed = turn.executed ?? [];
  const dropped = (turn.actions ?? []).slice(executed.length);
  return html`<span class="actions">${executed.map((action) => html`<span class="action">${visible(action)}</span>`)}
    ${dropped.map((action) => html`<span class="action dropped" title="not executed">${visible(action)}<span class="sr-only"> (not executed)</span></span>`)}
    ${executed.length + dropped.length === 0 && html`<span class="muted">no action</span>`}</span>`;
}

// Of the tokens of a reply: one number, or from the smallest to the largest.
function Advantage({ range }) {
  if (!range) return null;
  const [low, high] = range;
  return html`<span>advantage <b>${low === high ? number(low) : `${number(low)} to ${number(high)}`}</b></span>`;
}

function Turn({ turn, number: n, isCurrent, go, colouring, hasIds, full, promptTokens }) {
  const element = useRef(null);
  const isOpened = useRef(false);
  useEffect(() => {
    // Where turns stand beside the board they follow the film; below it, they would scroll the board away.
    if (isCurrent && isOpened.current && matchMedia("(min-width: 861px)").matches) element.current.scrollIntoView({ block: "nearest" });
    isOpened.current = true;
  }, [isCurrent]);
  const info = Object.entries(turn.info ?? {});
  return html`<li class=${`turn ${isCurrent ? "current" : ""}`} ref=${element} aria-current=${isCurrent ? "step" : undefined}>
    <div class="turn-head"><button type="button" class="quiet" onClick=${go}>Turn ${n}</button>
      <${Actions} turn=${turn} />
      <span class="spacer"></span><span>reward <b>${number(turn.reward)}</b></span>
      ${turn.penalty ? html`<span class="penalty">penalty <b>${number(turn.penalty)}</b></span>` : ""}
      <${Advantage} range=${turn.advantage} /></div>
    ${turn.is_parsed === false && html`<p class="note">The reply does not have the required form.</p>`}
    ${colouring === "mask" && promptTokens && html`<div class="said"><h4>Prompt</h4>
      <${Tokens} tokens=${promptTokens} colouring=${colouring} hasIds=${hasIds} /></div>`}
    ${turn.thought && html`<div class="said"><h4>Thought</h4><${Text} text=${turn.thought} name="thought" /></div>`}
    <div class="said"><h4>Reply</h4>
      ${turn.tokens?.length && (colouring !== "none" || hasIds)
        ? html`<${Tokens} tokens=${turn.tokens} colouring=${colouring} hasIds=${hasIds} full=${full} />`
        : html`<${Text} text=${turn.text} name="reply" />`}</div>
    ${turn.tool_result != null && html`<div class="said"><h4>Result of the tool${turn.tool_problem ? `: ${statusOf(turn.tool_problem)}` : ""}</h4><${Text} text=${turn.tool_result} name="result" /></div>`}
    <details><summary>${turn.role === "tool" ? "Tool message" : "Prompt"}${turn.stop_reason ? `, info, ended by ${statusOf(turn.stop_reason)}` : " and info"}</summary><${Text} text=${turn.user ?? turn.observation} name="prompt" />
      ${info.length > 0 && html`<p class="info">${info.map(([key, value]) => html`<span>${visible(key)} <b>${typeof value === "number" ? number(value) : visible(JSON.stringify(value))}</b></span>`)}</p>`}</details>
  </li>`;
}

// Why nothing of an episode was trained on.
const UNTRAINED = {
  no: "Nothing of this episode was trained on: the filter dropped its group, or a fault broke it.",
  unknown: "This run kept no advantages: an earlier version wrote it.",
  never: "This rollout was not made for training: nothing of it was trained on.",
};

function Untrained({ episode, colouring }) {
  const text = UNTRAINED[episode.trained];
  return text && (colouring === "advantage" || (colouring === "mask" && episode.trained !== "unknown"))
    ? html`<p class="muted hint">${text}</p>` : null;
}

const statusOf = (text) => visible(String(text).replaceAll("_", " "));

function Film({ id, episode, search }) {
  const frames = framesOf(episode);
  const film = useFilm(frames.length, Number(search.turn ?? 0) || 0);
  const turn = film.at;
  const colouring = search.colour ?? "logprob";
  const hasIds = search.ids === "1";
  const parts = ["run", id, "episode", episode.file, episode.index];
  const set = (change) => replace(parts, { colour: search.colour, ids: search.ids, turn: film.at || "", ...change });
  const withTokens = episode.turns.filter((one) => one.tokens?.length);
  const isForeign = !withTokens.every(fits);
  const hasTokens = withTokens.length > 0 && !isForeign;
  const full = colouring === "advantage" ? fullAdvantage(episode.turns) : undefined;
  // The tokens of prompts are many, and the mask alone is about them.
  const path = runPath(id) + "/episode" + query({ file: episode.file, index: episode.index, prompts: 1 });
  const prompts = useGet(hasTokens && colouring === "mask" ? path : null);
  const label = turn >= episode.turns.length ? "the end" : `before turn ${turn + 1} of ${episode.turns.length}`;
  return html`<div class="episode">
    <div class="stage"><div class="stage-inner">
      <${Board} frame=${frames[turn]} />
      <${FilmControls} film=${film} label=${label} />
      <p class="muted hint">Keys: ← → move, space plays.</p></div></div>
    <div>
      ${hasTokens && html`<div class="toolbar"><${Choice} label="Colour" options=${COLOURINGS} value=${colouring} onChange=${(value) => set({ colour: value })} />
        <button type="button" aria-pressed=${hasIds} onClick=${() => set({ ids: hasIds ? "" : "1" })}>Token ids</button>${!(colouring === "advantage" && episode.trained !== "yes") && html`<${Scale} colouring=${colouring} full=${full} />`}</div>
        <${Untrained} episode=${episode} colouring=${colouring} /><${Problem} error=${prompts.error} />`}
      ${episode.tokens_missing && html`<p class="muted hint">${visible(episode.tokens_missing)} So tokens are not coloured.</p>`}
      ${isForeign && html`<p class="muted hint">The tokenizer of the model on this machine is not the one of this run: its tokens do not make up the replies, so they are not coloured.</p>`}
      ${episode.system && html`<details class="fold"><summary>System message</summary><${Text} text=${episode.system} name="system" /></details>`}
      <ol class="turns">${episode.turns.map((one, i) => html`<${Turn} key=${i} turn=${one} number=${i + 1} isCurrent=${i === turn} go=${() => film.go(i)}
        colouring=${hasTokens ? colouring : "none"} hasIds=${hasTokens && hasIds} full=${full} promptTokens=${prompts.data?.turns[i].prompt_tokens} />`)}</ol>
      ${episode.error && html`<p class="problem">${visible(episode.error)}</p>`}
    </div>
  </div>`;
}

// Where Previous and Next lead in a file of `count` episodes; a report holds only those of `held`.
export function neighbours(at, count, held) {
  if (held) return [held.findLast((index) => index < at), held.find((index) => index > at)];
  return [at > 0 ? at - 1 : undefined, at + 1 < count ? at + 1 : undefined];
}

export function Episode({ id, file, index, search }) {
  const run = useGet(runPath(id));
  const { data: episode, error } = useGet(runPath(id) + "/episode" + query({ file, index }));
  const list = useGet(runPath(id) + "/episodes" + query({ file }));
  const name = run.data?.name ?? id;
  const crumbs = html`<${Crumbs} items=${[[name, ["run", id]], ["Episodes", ["run", id, "episodes"]], [`${file}, ${index}`]]} />`;
  if (!episode) return html`${crumbs}${error ? html`<${Problem} error=${error} />` : html`<${Wait} what="the episode" />`}`;
  const at = Number(index);
  const count = list.data?.files.find((one) => one.name === file)?.count ?? 0;
  const [previous, next] = neighbours(at, count, list.data?.held);
  return html`${crumbs}
    <div class="page-head"><h1>${visible(episode.tag)}, group ${episode.group}, member ${episode.member}</h1>
      <nav class="tabs" aria-label="Near episodes">
        ${previous !== undefined && html`<a href=${link(["run", id, "episode", file, previous])}>Previous</a>`}
        ${next !== undefined && html`<a href=${link(["run", id, "episode", file, next])}>Next</a>`}
        <a href=${link(["run", id, "group", file, episode.group])}>Its group</a>
        ${!isReport && html`<a href=${link(["run", id, "play"], { tag: episode.tag, seed: episode.seed, member: episode.member || "", file, index })}>Play this level</a>`}</nav></div>
    <dl class="facts">
      <div class="fact"><dt>Status</dt><dd><${Status} status=${episode.status} /></dd></div>
      <div class="fact"><dt>Reward</dt><dd>${number(episode.reward)}</dd></div>
      <div class="fact"><dt>Penalty</dt><dd>${number(episode.penalty)}</dd></div>
      <div class="fact"><dt>Turns</dt><dd>${episode.turns.length}</dd></div>
      <div class="fact"><dt>Rollout</dt><dd>${visible(file)}</dd></div>
      <div class="fact"><dt>Seed</dt><dd>${episode.seed}</dd></div></dl>
    <${Film} id=${id} episode=${{ ...episode, file, index }} search=${search} />`;
}
