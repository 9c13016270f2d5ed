// The sampled tokens of a reply, coloured by how sure the model was.
import { number, visible } from "app/format.js";
import { html, useState } from "app/html.js";
import { useTheme } from "app/theme_switch.js";

export const COLOURINGS = { none: "None", logprob: "Log-prob", entropy: "Entropy" };
const FULL = { logprob: -4, entropy: 2.5 }; // nats at which the colour is full
const HUES = { light: "230, 159, 0", dark: "0, 114, 178" };
const MOST = 1500;

// 0 (sure) to 1 (unsure)
export function doubt(token, colouring) {
  const value = token[colouring];
  if (value === null || value === undefined) return 0;
  return Math.max(0, Math.min(1, value / FULL[colouring]));
}

// Whether the tokens make up the reply; a tokenizer that has changed since the run does not write it.
export function fits(turn) {
  const joined = turn.tokens.map((token) => token.text).join("").replace(/<\|[^|]*\|>/g, "").trim();
  return turn.text.includes(joined) || joined.includes(turn.text.trim());
}

const described = (token) => [
  token.logprob !== null && token.logprob !== undefined && `log-prob ${number(token.logprob)}, probability ${number(Math.exp(token.logprob))}`,
  token.entropy !== null && token.entropy !== undefined && `entropy ${number(token.entropy)}`,
  `id ${token.id}`,
].filter(Boolean).join(", ");

export function Tokens({ tokens, colouring, hasIds }) {
  const theme = useTheme();
  const [isWhole, setWhole] = useState(false);
  const shown = isWhole ? tokens : tokens.slice(0, MOST);
  return html`<div class="tokens" dir="ltr">${shown.map((token, i) => {
    const share = colouring === "none" ? 0 : doubt(token, colouring);
    const style = share > 0.02 ? { backgroundColor: `rgba(${HUES[theme]}, ${(0.1 + 0.8 * share).toFixed(2)})` } : undefined;
    return html`<span class="token" key=${i} style=${style} title=${described(token)} data-doubt=${share.toFixed(2)}>${visible(token.text)}${hasIds && html`<sub>${token.id}</sub>`}</span>`;
  })}${shown.length < tokens.length && html`<button type="button" class="quiet" onClick=${() => setWhole(true)}>… all ${tokens.length} tokens</button>`}</div>`;
}

export function Scale({ colouring }) {
  const theme = useTheme();
  if (colouring === "none") return null;
  const steps = [0, 0.25, 0.5, 0.75, 1];
  return html`<span class="scale">${steps.map((share) => html`<span class="scale-step" style=${{ backgroundColor: `rgba(${HUES[theme]}, ${share ? 0.1 + 0.8 * share : 0})` }}>
    ${number(share * FULL[colouring])}</span>`)}<span class="muted">nats</span></span>`;
}
