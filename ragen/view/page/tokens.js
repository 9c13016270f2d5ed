// Tokens, coloured by how sure the model was of them, whether they are trained on, or what training gave them.
import { number, visible } from "app/format.js";
import { html, useState } from "app/html.js";
import { useTheme } from "app/theme_switch.js";

export const COLOURINGS = { none: "None", logprob: "Log-prob", entropy: "Entropy", mask: "Mask", advantage: "Advantage" };
const FULL = { logprob: -4, entropy: 2.5, mask: 1 }; // value at which the colour is full; in nats
const UNITS = { logprob: "nats", entropy: "nats", mask: "1 is trained on, 0 is not", advantage: "" };
// Advantages are blue above zero and orange below. Texts stay readable on all of them.
const HUES = {
  light: { plain: "230, 159, 0", above: "86, 180, 233", below: "230, 159, 0" },
  dark: { plain: "0, 114, 178", above: "0, 114, 178", below: "163, 71, 0" },
};
const MOST = 1500;

const isKnown = (value) => value !== null && value !== undefined;

// The advantage at which the colour is full: the largest of the episode, above or below zero.
export function fullAdvantage(turns) {
  const sizes = turns.flatMap((turn) => turn.advantage ?? []).map(Math.abs);
  return Math.max(0, ...sizes) || 1;
}

// From 0 (no colour) to 1 (full); below zero for an advantage below zero.
export function shade(token, colouring, full = FULL[colouring]) {
  const value = token[colouring];
  if (!isKnown(value) || !full) return 0;
  return Math.max(colouring === "advantage" ? -1 : 0, Math.min(1, value / full));
}

function ground(share, colouring, theme) {
  const hue = HUES[theme][colouring !== "advantage" ? "plain" : share < 0 ? "below" : "above"];
  return `rgba(${hue}, ${share ? (0.1 + 0.8 * Math.abs(share)).toFixed(2) : 0})`;
}

// Whether the tokens make up the reply; a tokenizer that has changed since the run does not write it.
// Markers are left aside on both sides: a reply may hold one in its middle, and ends with one that is not its text.
export function fits(turn) {
  const plain = (text) => text.replace(/<\|[^|]*\|>/g, "").trim();
  const [joined, text] = [plain(turn.tokens.map((token) => token.text).join("")), plain(turn.text)];
  return text.includes(joined) || joined.includes(text);
}

const described = (token) => [
  isKnown(token.logprob) && `log-prob ${number(token.logprob)}, probability ${number(Math.exp(token.logprob))}`,
  isKnown(token.entropy) && `entropy ${number(token.entropy)}`,
  isKnown(token.advantage) && `advantage ${number(token.advantage)}`,
  isKnown(token.mask) && `mask ${token.mask}`,
  `id ${token.id}`,
].filter(Boolean).join(", ");

export function Tokens({ tokens, colouring, hasIds, full }) {
  const theme = useTheme();
  const [isWhole, setWhole] = useState(false);
  const shown = isWhole ? tokens : tokens.slice(0, MOST);
  return html`<div class="tokens" dir="ltr">${shown.map((token, i) => {
    const share = colouring === "none" ? 0 : shade(token, colouring, full);
    const style = Math.abs(share) > 0.02 ? { backgroundColor: ground(share, colouring, theme) } : undefined;
    return html`<span class="token" key=${i} style=${style} title=${described(token)} data-shade=${share.toFixed(2)}>${visible(token.text)}${hasIds && html`<sub>${token.id}</sub>`}</span>`;
  })}${shown.length < tokens.length && html`<button type="button" class="quiet" onClick=${() => setWhole(true)}>… all ${tokens.length} tokens</button>`}</div>`;
}

const STEPS = { logprob: [0, 0.25, 0.5, 0.75, 1], entropy: [0, 0.25, 0.5, 0.75, 1], mask: [0, 1], advantage: [-1, -0.5, 0, 0.5, 1] };

export function Scale({ colouring, full = FULL[colouring] }) {
  const theme = useTheme();
  if (colouring === "none") return null;
  return html`<span class="scale">${STEPS[colouring].map((share) => html`<span class="scale-step" style=${{ backgroundColor: ground(share, colouring, theme) }}>
    ${number(share * full)}</span>`)}<span class="muted">${UNITS[colouring]}</span></span>`;
}
