// Playing frames one after the other: a position, a timer, and the keys that move it.
import { html, useEffect, useState } from "app/html.js";

const SPEEDS = { 1: "1×", 2: "2×", 4: "4×" };

export function useFilm(count, start = 0, { hasKeys = true } = {}) {
  const [at, setAt] = useState(Math.min(start, Math.max(0, count - 1)));
  const [isPlaying, setPlaying] = useState(false);
  const [speed, setSpeed] = useState("1");
  const last = Math.max(0, count - 1);
  useEffect(() => {
    if (!isPlaying) return;
    if (at >= last) {
      setPlaying(false);
      return;
    }
    const timer = setTimeout(() => setAt(at + 1), 900 / Number(speed));
    return () => clearTimeout(timer);
  }, [isPlaying, at, last, speed]);
  const go = (to) => {
    setPlaying(false);
    setAt(Math.max(0, Math.min(last, to)));
  };
  const play = () => {
    if (!isPlaying && at >= last) setAt(0);
    setPlaying(!isPlaying);
  };
  useEffect(() => {
    if (!hasKeys) return;
    const listen = (event) => {
      if (event.target.closest?.("input, select, textarea, button, summary") || event.ctrlKey || event.metaKey || event.altKey) return;
      const act = { ArrowLeft: () => go(at - 1), ArrowRight: () => go(at + 1), Home: () => go(0), End: () => go(last), " ": play }[event.key];
      if (!act) return;
      event.preventDefault();
      act();
    };
    addEventListener("keydown", listen);
    return () => removeEventListener("keydown", listen);
  });
  return { at: Math.min(at, last), last, isPlaying, speed, setSpeed, go, play };
}

export function FilmControls({ film, label }) {
  return html`<div class="film" role="group" aria-label="Film">
    <button type="button" onClick=${() => film.go(0)} disabled=${film.at === 0} aria-label="First">⇤</button>
    <button type="button" onClick=${() => film.go(film.at - 1)} disabled=${film.at === 0} aria-label="Back">◀</button>
    <button type="button" class="primary" onClick=${film.play}>${film.isPlaying ? "Pause" : "Play"}</button>
    <button type="button" onClick=${() => film.go(film.at + 1)} disabled=${film.at === film.last} aria-label="Forward">▶</button>
    <button type="button" onClick=${() => film.go(film.last)} disabled=${film.at === film.last} aria-label="Last">⇥</button>
    <input type="range" min="0" max=${film.last} value=${film.at} aria-label="Turn" onInput=${(event) => film.go(Number(event.target.value))} />
    <select aria-label="Speed" value=${film.speed} onChange=${(event) => film.setSpeed(event.target.value)}>
      ${Object.entries(SPEEDS).map(([value, name]) => html`<option value=${value} key=${value}>${name}</option>`)}</select>
    <span class="film-label">${label}</span>
  </div>`;
}
