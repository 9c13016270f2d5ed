// A level that a person plays with the prompts of the model, beside the solver's line and the model's own episode.
import { post, query, runPath, useGet } from "app/api.js";
import { Board } from "app/board.js";
import { Actions, framesOf } from "app/episode.js";
import { Status, statusName } from "app/episodes.js";
import { FilmControls, useFilm } from "app/film.js";
import { number, visible } from "app/format.js";
import { html, useEffect, useRef, useState } from "app/html.js";
import { Choice, Crumbs, Problem, Tabs, Text, Wait } from "app/parts.js";
import { link, replace } from "app/router.js";

const ARROWS = { ArrowUp: "up", ArrowDown: "down", ArrowLeft: "left", ArrowRight: "right" };

// The reply that says these actions, in the form that the prompt asks for.
export function written(game, actions, thought = "") {
  const said = game.has_thought ? `<think>${thought}</think>` : "";
  return `${said}<answer>${actions.join(` ${game.action_sep} `)}</answer>`;
}

// The action that a key stands for: an arrow where an action is called so, a digit for its place in the list.
export function actionOf(key, actions) {
  const arrow = ARROWS[key] && actions.find((name) => name.trim().toLowerCase() === ARROWS[key]);
  return arrow ?? (/^[1-9]$/.test(key) ? actions[Number(key) - 1] : undefined);
}

function Level({ offer, search, go }) {
  const [tag, setTag] = useState(search.tag ?? offer.tags[0]?.tag ?? "");
  const [seed, setSeed] = useState(search.seed ?? String(offer.seed));
  const [own, others] = [offer.tags.filter((one) => one.is_played), offer.tags.filter((one) => !one.is_played)];
  const options = (tags) => tags.map((one) => html`<option value=${one.tag} key=${one.tag}>${visible(one.tag)}</option>`);
  useEffect(() => {
    setSeed(search.seed ?? String(offer.seed));
  }, [search.seed]);
  const start = (event) => {
    event.preventDefault();
    go({ tag, seed });
  };
  return html`<form class="filters" onSubmit=${start}>
    <label>Environment <select value=${tag} onChange=${(event) => setTag(event.target.value)}>
      <optgroup label="played by this configuration">${options(own)}</optgroup>${others.length > 0 && html`<optgroup label="others">${options(others)}</optgroup>`}</select></label>
    <label>Seed <input type="number" min="0" step="1" class="short" required value=${seed} onInput=${(event) => setSeed(event.target.value)} /></label>
    <button type="submit">Start</button>
    <button type="button" onClick=${() => go({ tag, seed: String(Number(seed) + 1) })}>Next level</button>
  </form>`;
}

// What the model would be shown: the newest message in full, the others on demand.
function Prompt({ messages }) {
  const [system, ...rest] = messages;
  const earlier = rest.slice(0, -1);
  return html`<section class="prompt" aria-label="Prompt"><h2>Prompt</h2>
    <details open=${earlier.length === 0}><summary>System message</summary><${Text} text=${system.content} name="system" /></details>
    ${earlier.length > 0 && html`<details><summary>${earlier.length} earlier messages of this prompt</summary>
      ${earlier.map((message, i) => html`<div class="said" key=${i}><h3>${message.role}</h3><${Text} text=${message.content} name="earlier" /></div>`)}</details>`}
    <h3>${rest.at(-1)?.role === "tool" ? "Tool message" : "User message"}</h3><${Text} text=${rest.at(-1)?.content} name="user" /></section>`;
}

// The reply: actions that are pressed are written into it, and it may be edited as a text.
function Reply({ game, isBusy, send }) {
  const [text, setText] = useState(game.prefix);
  const [chosen, setChosen] = useState([]);
  const latest = useRef({ text, chosen }); // keys may come faster than the page is drawn
  const write = (newText, actions) => {
    latest.current = { text: newText, chosen: actions };
    setText(newText);
    setChosen(actions);
  };
  const choose = (actions) => write(actions.length ? written(game, actions) : game.prefix, actions);
  const add = (name) => latest.current.chosen.length < game.max_actions && choose([...latest.current.chosen, name.trim()]);
  const takeBack = () => choose(latest.current.chosen.slice(0, -1));
  const isFull = chosen.length >= game.max_actions;
  useEffect(() => {
    const listen = (event) => {
      if (isBusy || event.ctrlKey || event.metaKey || event.altKey || event.target.closest?.("input, select, textarea, summary, a")) return;
      const isButton = event.target.closest?.("button");
      const name = actionOf(event.key, game.actions);
      if (name !== undefined) add(name);
      else if (event.key === "Backspace") takeBack();
      else if (event.key === "Enter" && latest.current.chosen.length > 0 && !isButton) send(latest.current.text);
      else return;
      event.preventDefault();
    };
    addEventListener("keydown", listen);
    return () => removeEventListener("keydown", listen);
  });
  return html`<form class="reply" aria-label="Reply" onSubmit=${(event) => { event.preventDefault(); send(text); }}>
    <div class="choices" role="group" aria-label="Actions">${game.actions.map((name, i) => html`
      <button type="button" key=${name} disabled=${isBusy || isFull} onClick=${() => add(name)}>${visible(name)}${i < 9 && html` <kbd aria-hidden="true">${i + 1}</kbd>`}</button>`)}
      <button type="button" class="quiet" disabled=${isBusy || chosen.length === 0} onClick=${takeBack}>Take back</button></div>
    <label class="reply-text">Reply, as the model would write it
      <textarea rows="3" spellcheck="false" value=${text} disabled=${isBusy} onInput=${(event) => write(event.target.value, [])}
        onKeyDown=${(event) => { if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) { event.preventDefault(); send(text); } }}></textarea></label>
    <div class="reply-end"><button type="submit" class="primary" disabled=${isBusy}>Send</button>
      <span class="muted hint">At most ${game.max_actions} ${game.max_actions === 1 ? "action" : "actions"} now. Keys: arrows or digits choose, Backspace takes back, Enter sends (Ctrl+Enter from the text).</span></div>
  </form>`;
}

const STATES = { loading: "is being loaded", ready: "is ready", ended: "has ended" };

// The model of --play: it answers a turn, or one after the other until the end.
function Player({ model, game, isBusy, ask, temperature: usual }) {
  const [isSampled, setSampled] = useState(true);
  const [temperature, setTemperature] = useState(usual);
  const [isPlaying, setPlaying] = useState(false);
  const isWanted = useRef(false);
  const stop = () => {
    isWanted.current = false;
    setPlaying(false);
  };
  useEffect(() => stop, []);
  const answer = (now) => ask("/api/play/model", { session: now.session, turn: now.turns.length, temperature: isSampled ? Number(temperature) : 0 });
  const playOn = async () => {
    isWanted.current = true;
    setPlaying(true);
    for (let now = game; now && !now.is_over && isWanted.current;) now = await answer(now);
    stop();
  };
  return html`<section class="player" aria-label="Model"><h2>Let the model answer</h2>
    <p class="muted">${visible(model.name)} ${STATES[model.state]}. ${visible(model.reason)}</p>
    <div class="reply-end">
      <${Choice} label="Replies" options=${{ sampled: "Sampled", greedy: "Greedy" }} value=${isSampled ? "sampled" : "greedy"} onChange=${(value) => setSampled(value === "sampled")} />
      ${isSampled && html`<label class="muted">Temperature <input type="number" class="short" min="0" max="10" step="0.1" value=${temperature} onInput=${(event) => setTemperature(event.target.value)} /></label>`}
      <button type="button" disabled=${isBusy || isPlaying || model.state === "ended"} onClick=${() => answer(game)}>This turn</button>
      ${isPlaying ? html`<button type="button" onClick=${stop}>Stop</button>` : html`<button type="button" disabled=${isBusy || model.state === "ended"} onClick=${playOn}>The whole episode</button>`}
      <span role="status">${isBusy ? "The model is asked …" : ""}</span></div></section>`;
}

function Played({ game }) {
  if (game.turns.length === 0) return null;
  return html`<section aria-label="Turns played"><h2>Turns</h2><ol class="turns" reversed>${game.turns.map((turn, i) => html`<li class="turn" key=${i}>
    <div class="turn-head"><b>Turn ${i + 1}</b><${Actions} turn=${turn} /><span class="spacer"></span><span>reward <b>${number(turn.reward)}</b></span>
      ${turn.penalty ? html`<span class="penalty">penalty <b>${number(turn.penalty)}</b></span>` : ""}</div>
    ${turn.is_parsed === false && html`<p class="note">The reply does not have the required form.</p>`}
    <${Text} text=${turn.text} name="reply" /></li>`).reverse()}</ol></section>`;
}

// Somebody else's episode on this level, as a small film.
function Line({ line }) {
  const frames = framesOf(line);
  const film = useFilm(frames.length, 0, { hasKeys: false });
  return html`<div class="line"><p><${Status} status=${line.status} />, reward <b>${number(line.reward)}</b>${line.penalty ? html`, <span class="penalty">penalty ${number(line.penalty)}</span>` : ""}</p>
    <${Board} frame=${frames[film.at]} isSmall />
    <${FilmControls} film=${film} label=${film.at === film.last ? "the end" : `before turn ${film.at + 1}`} />
    <ol class="moves">${line.turns.map((turn, i) => html`<li key=${i} class=${i === film.at ? "current" : ""}>
      ${turn.executed.length ? turn.executed.map(visible).join(", ") : html`<span class="muted">no action</span>`} <small>${number(turn.reward)}</small>${turn.penalty ? html` <span class="penalty">${number(turn.penalty)}</span>` : ""}</li>`)}</ol>
    ${line.error && html`<p class="problem">${visible(line.error)}</p>`}</div>`;
}

// A fold whose content is asked for when it is opened; the end of the episode opens it.
function Fold({ title, isOpened, children }) {
  const [isOpen, setOpen] = useState(false);
  useEffect(() => {
    if (isOpened) setOpen(true);
  }, [isOpened]);
  return html`<details class="fold" open=${isOpen} onToggle=${(event) => setOpen(event.target.open)}><summary>${title}</summary>${isOpen && children}</details>`;
}

function Solver({ level }) {
  const { data, error } = useGet("/api/play/solver" + query(level));
  if (error) return html`<${Problem} error=${error} />`;
  if (!data) return html`<${Wait} what="the solver's line" />`;
  return data.missing ? html`<p class="muted">${visible(data.missing)}</p>` : html`<${Line} line=${data} />`;
}

function RunEpisode({ id, file, index }) {
  const { data, error } = useGet(runPath(id) + "/episode" + query({ file, index }));
  if (error) return html`<${Problem} error=${error} />`;
  return data ? html`<${Line} line=${data} key=${`${file}/${index}`} />` : html`<${Wait} what="the episode" />`;
}

// Episodes of the run on this level, the newest first.
function RunEpisodes({ id, level, search }) {
  const { data, error } = useGet(runPath(id) + "/episodes" + query({ tag: level.tag, seed: level.seed, sort: "-step" }));
  const [picked, pick] = useState(search.file ? `${search.file}/${search.index}` : "");
  if (error) return html`<${Problem} error=${error} />`;
  if (!data) return html`<${Wait} what="the run's episodes" />`;
  const rows = data.rows;
  if (rows.length === 0) return html`<p class="muted">The run kept no episode on this level.</p>`;
  const name = (row) => `${row.file}/${row.index}`;
  const at = rows.find((row) => name(row) === picked) ?? rows[0];
  return html`<div class="filters"><label>Episode <select value=${name(at)} onChange=${(event) => pick(event.target.value)}>
      ${rows.map((row) => html`<option value=${name(row)} key=${name(row)}>${`${row.rollout === "val" ? "validation" : "training"} ${row.step ?? ""}, member ${row.member}, ${statusName(row.status)}`}</option>`)}</select></label>
    <a href=${link(["run", id, "episode", at.file, at.index])}>whole episode</a></div>
    <${RunEpisode} id=${id} file=${at.file} index=${at.index} />`;
}

function Game({ id, level, search, go, offer, reload }) {
  const [game, setGame] = useState(null);
  const [error, setError] = useState(null);
  const [isBusy, setBusy] = useState(false);
  const wanted = useRef(0);
  const ask = async (path, fields) => {
    const mine = ++wanted.current;
    setBusy(true);
    setError(null);
    try {
      const answer = await post(path, fields);
      if (mine === wanted.current) setGame(answer);
      return answer;
    } catch (problem) {
      if (mine === wanted.current) setError(problem);
      reload(); // the model may have ended
      return null;
    } finally {
      if (mine === wanted.current) setBusy(false);
    }
  };
  const start = () => ask("/api/play/start", level);
  useEffect(() => {
    start();
    return () => { wanted.current += 1; };
  }, []);
  if (!game) return error ? html`<${Problem} error=${error} />` : html`<${Wait} what="the level" />`;
  const send = (text) => !isBusy && ask("/api/play/reply", { session: game.session, turn: game.turns.length, text });
  return html`<div class="episode play">
    <div class="stage"><div class="stage-inner">
      <${Board} frame=${game.final_frame} />
      <dl class="facts">
        <div class="fact"><dt>Reward</dt><dd>${number(game.reward)}</dd></div>
        <div class="fact"><dt>Penalty</dt><dd>${number(game.penalty)}</dd></div>
        ${game.is_over ? html`<div class="fact"><dt>Status</dt><dd><${Status} status=${game.status} /></dd></div>` : html`
          <div class="fact"><dt>Actions left</dt><dd>${game.actions_left}</dd></div>
          <div class="fact"><dt>Turns left</dt><dd>${game.turns_left}</dd></div>`}</dl>
    </div></div>
    <div class="talk">
      <${Problem} error=${error} />
      ${game.error && html`<p class="problem">${visible(game.error)}</p>`}
      ${game.is_over ? html`<div class="card over" role="status"><h2>The episode is over: ${visible(statusName(game.status))}</h2>
          <p>${number(game.reward)} from the environment, ${number(game.penalty)} for replies without a usable action, in ${game.turns.length} ${game.turns.length === 1 ? "turn" : "turns"}.</p>
          <p class="reply-end"><button type="button" class="primary" onClick=${start}>Play it again</button>
            <button type="button" onClick=${() => go({ tag: level.tag, seed: String(level.seed + 1) })}>Next level</button></p></div>`
        : html`<${Prompt} messages=${game.messages} key=${game.turns.length} />
          ${offer.model && html`<${Player} model=${offer.model} game=${game} isBusy=${isBusy} ask=${ask} temperature=${offer.temperature} key=${game.session} />`}
          <${Reply} game=${game} isBusy=${isBusy} send=${send} key=${`${game.session}/${game.turns.length}`} />`}
      <${Played} game=${game} />
    </div>
    <div class="beside">
      <${Fold} title="The solver's line" isOpened=${game.is_over}><${Solver} level=${level} /></${Fold}>
      ${id && html`<${Fold} title="The run's episodes on this level" isOpened=${game.is_over}><${RunEpisodes} id=${id} level=${level} search=${search} /></${Fold}>`}
    </div>
  </div>`;
}

export function Play({ id, search }) {
  const run = useGet(id ? runPath(id) : null);
  const { data: offer, error, reload } = useGet("/api/play" + query({ run: id }));
  const isLoading = offer?.model?.state === "loading";
  useEffect(() => {
    if (!isLoading) return;
    const timer = setTimeout(reload, 2000);
    return () => clearTimeout(timer);
  }, [isLoading, offer]);
  const route = id ? ["run", id, "play"] : ["play"];
  const go = (change) => replace(route, change);
  const tag = search.tag ?? offer?.tags[0]?.tag;
  const level = { run: id ?? "", tag, seed: Number(search.seed ?? offer?.seed ?? 0), member: Number(search.member ?? 0) };
  return html`<${Crumbs} items=${id ? [[run.data?.name ?? id, ["run", id]], ["Play"]] : [["Play"]]} />
    <div class="page-head"><h1>Play</h1>${id && html`<${Tabs} id=${id} kind=${run.data?.kind} current="play" />`}</div>
    ${offer ? html`<${Level} offer=${offer} search=${search} go=${go} key=${search.tag} />
      <${Game} id=${id} level=${level} search=${search} go=${go} offer=${offer} reload=${reload} key=${JSON.stringify(level)} />`
      : error ? html`<${Problem} error=${error} />` : html`<${Wait} what="what can be played" />`}`;
}
