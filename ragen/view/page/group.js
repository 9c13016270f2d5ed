// The members of a group side by side: the same level, played several times, and what each earned.
import { get, query, runPath, useGet } from "app/api.js";
import { Board } from "app/board.js";
import { colourOf } from "app/chart.js";
import { framesOf } from "app/episode.js";
import { Status } from "app/episodes.js";
import { FilmControls, useFilm } from "app/film.js";
import { number, visible } from "app/format.js";
import { html, useEffect, useState } from "app/html.js";
import { Crumbs, Problem, Wait } from "app/parts.js";
import { link } from "app/router.js";
import { useTheme } from "app/theme_switch.js";

const BINS = 10;
const MOST = 32;

// Rewards in equal bins: [{low, high, count}]; a single value is one bin.
export function histogram(rewards) {
  const low = Math.min(...rewards);
  const high = Math.max(...rewards);
  if (!(high > low)) return rewards.length ? [{ low, high, count: rewards.length }] : [];
  const width = (high - low) / BINS;
  const bins = Array.from({ length: BINS }, (_, i) => ({ low: low + i * width, high: low + (i + 1) * width, count: 0 }));
  for (const reward of rewards) bins[Math.min(BINS - 1, Math.floor((reward - low) / width))].count += 1;
  return bins;
}

function Histogram({ rewards }) {
  const theme = useTheme();
  const bins = histogram(rewards);
  const most = Math.max(...bins.map((bin) => bin.count));
  const [width, height, gap] = [320, 96, 2];
  const each = width / bins.length;
  const described = bins.filter((bin) => bin.count).map((bin) => `${bin.count} with ${number(bin.low)}${bin.high > bin.low ? ` to ${number(bin.high)}` : ""}`);
  return html`<figure class="histogram"><figcaption>Rewards with penalties</figcaption>
    <svg viewBox=${`0 0 ${width} ${height + 18}`} role="img" aria-label=${`Histogram: ${described.join("; ")}`}>
      ${bins.map((bin, i) => bin.count > 0 && html`<g key=${i}>
        <rect x=${i * each + gap / 2} y=${16 + (1 - bin.count / most) * (height - 16)} width=${Math.min(each, 80) - gap} height=${(bin.count / most) * (height - 16)} fill=${colourOf(theme, 0)} rx="2" />
        <text class="svg-text" x=${i * each + Math.min(each, 80) / 2} y=${12 + (1 - bin.count / most) * (height - 16)} text-anchor="middle">${bin.count}</text></g>`)}
      <line x1="0" y1=${height} x2=${width} y2=${height} class="svg-line" />
      <text class="svg-text" x="0" y=${height + 14}>${number(bins[0]?.low)}</text>
      ${bins.length > 1 && html`<text class="svg-text" x=${width} y=${height + 14} text-anchor="end">${number(bins.at(-1)?.high)}</text>`}
    </svg></figure>`;
}

function useEpisodes(id, members) {
  const [episodes, setEpisodes] = useState(null);
  const [error, setError] = useState(null);
  const key = JSON.stringify(members?.map((member) => [member.file, member.index]) ?? null);
  useEffect(() => {
    if (!members) return;
    let isWanted = true;
    Promise.all(members.map(({ file, index }) => get(runPath(id) + "/episode" + query({ file, index }))))
      .then((found) => isWanted && setEpisodes(found))
      .catch((problem) => isWanted && setError(problem));
    return () => (isWanted = false);
  }, [id, key]);
  return { episodes, error };
}

function Member({ id, header, episode, at }) {
  const frames = framesOf(episode);
  const turn = Math.min(at, frames.length - 1);
  return html`<li class="card member"><h2><a href=${link(["run", id, "episode", header.file, header.index])}>Member ${header.member}</a>
      <span class="spacer"></span><b>${number(header.reward + (header.penalty ?? 0))}</b></h2>
    <p><${Status} status=${header.status} /> <small class="muted">${turn >= episode.turns.length ? "ended" : `turn ${turn + 1}`} of ${episode.turns.length}</small></p>
    <${Board} frame=${frames[turn]} isSmall />
    <ol class="moves">${episode.turns.map((one, i) => html`<li key=${i} class=${i === turn ? "current" : ""}>
      ${(one.executed ?? []).length ? one.executed.map(visible).join(", ") : html`<span class="muted">no action</span>`}${one.penalty ? html` <span class="penalty">${number(one.penalty)}</span>` : ""}</li>`)}</ol>
  </li>`;
}

function Members({ id, headers, episodes }) {
  const count = Math.max(...episodes.map((episode) => framesOf(episode).length));
  const film = useFilm(count);
  return html`<${FilmControls} film=${film} label=${film.at === film.last ? "the end" : `turn ${film.at + 1}`} />
    <ul class="members">${episodes.map((episode, i) => html`<${Member} key=${i} id=${id} header=${headers[i]} episode=${episode} at=${film.at} />`)}</ul>`;
}

export function Group({ id, file, group }) {
  const run = useGet(runPath(id));
  const { data, error } = useGet(runPath(id) + "/group" + query({ file, group }));
  const at = Number(group);
  const previous = useGet(at > 0 ? runPath(id) + "/episodes" + query({ file, group: at - 1 }) : null);
  const next = useGet(runPath(id) + "/episodes" + query({ file, group: at + 1 }));
  const headers = data?.members.filter((member) => member.is_held !== false).slice(0, MOST); // a report holds some
  const { episodes, error: episodesError } = useEpisodes(id, headers);
  const crumbs = html`<${Crumbs} items=${[[run.data?.name ?? id, ["run", id]], ["Episodes", ["run", id, "episodes"]], [`${file}, group ${group}`]]} />`;
  if (!data) return html`${crumbs}${error ? html`<${Problem} error=${error} />` : html`<${Wait} what="the group" />`}`;
  if (data.members.length === 0) return html`${crumbs}<${Problem} error=${`${file} has no group ${group}.`} />`;
  const { rewards } = data;
  const mean = rewards.reduce((a, b) => a + b, 0) / rewards.length;
  const deviation = rewards.length > 1 ? Math.sqrt(rewards.reduce((a, b) => a + (b - mean) ** 2, 0) / (rewards.length - 1)) : 0;
  return html`${crumbs}
    <div class="page-head"><h1>${visible(data.members[0]?.tag ?? "")}, group ${group}</h1><nav class="tabs" aria-label="Near groups">
      ${previous.data?.total > 0 && html`<a href=${link(["run", id, "group", file, at - 1])}>Previous</a>`}${next.data?.total > 0 && html`<a href=${link(["run", id, "group", file, at + 1])}>Next</a>`}</nav></div>
    <div class="group-head"><dl class="facts">
      <div class="fact"><dt>Members</dt><dd>${data.members.length}</dd></div>
      <div class="fact"><dt>Mean</dt><dd>${number(mean)}</dd></div>
      <div class="fact"><dt>Deviation</dt><dd>${number(deviation)}</dd></div>
      <div class="fact"><dt>Solved</dt><dd>${data.members.filter((member) => member.success).length}</dd></div>
      <div class="fact"><dt>Rollout</dt><dd>${visible(file)}</dd></div>
      <div class="fact"><dt>Seed</dt><dd>${data.members[0]?.seed}</dd></div></dl>
      <${Histogram} rewards=${rewards} /></div>
    <${Problem} error=${episodesError} />
    ${headers.length < data.members.length && html`<p class="muted" role="note">${headers.length} of ${data.members.length} members are shown.</p>`}
    ${headers.length === 0 ? null : episodes ? html`<${Members} id=${id} headers=${headers} episodes=${episodes} />` : !episodesError && html`<${Wait} what="the members" />`}`;
}
