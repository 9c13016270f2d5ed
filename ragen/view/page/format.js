// Numbers, durations and texts as people read them.

export function number(value, digits = 3) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  if (value === Infinity) return "∞";
  if (value < 0) return `−${number(-value, digits)}`;
  const size = value;
  if (Number.isInteger(value) && size < 1e6) return String(value);
  if (size !== 0 && size < 1e-3) return Number(value.toPrecision(digits)).toExponential().replace("e-", "e−");
  if (size >= 1e9) return `${trimmed(value / 1e9, digits)}G`;
  if (size >= 1e6) return `${trimmed(value / 1e6, digits)}M`;
  if (size >= 1e4) return `${trimmed(value / 1e3, digits)}k`;
  return trimmed(value, digits);
}

function trimmed(value, digits) {
  const decimals = digits - 1 - Math.floor(Math.log10(value));
  return String(Number(decimals > 0 ? rounded(value, decimals) : value.toPrecision(digits)));
}

// So many decimals. Exact ties, of which shares of 16 or 256 levels are full, go to the even digit, as Python prints
// them: 0.8125 is 0.812, which toFixed makes 0.813.
function rounded(value, decimals) {
  const beyond = value.toFixed(decimals + 30).split(".")[1]?.slice(decimals); // none: huge, or no number
  if (!/^50*$/.test(beyond)) return value.toFixed(decimals);
  const scale = 10 ** decimals;
  return ((2 * Math.round((value * scale) / 2)) / scale).toFixed(decimals);
}

// A share with three decimals, as the console prints it: 0.562
export const share = (value) => (value === null || value === undefined ? "–" : rounded(value, 3));

export const interval = (low, high) =>
  low === null || low === undefined || high === null || high === undefined ? "" : `[${share(low)}, ${share(high)}]`;

// The validations of a run by name, the mean over several first.
export function validationsOf(run) {
  const tags = Object.entries(run.validation ?? {});
  return tags.length > 1 ? [["mean", run.mean_validation], ...tags] : tags;
}

export function duration(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  if (seconds < 10) return `${seconds.toFixed(1)} s`;
  if (seconds < 120) return `${Math.round(seconds)} s`;
  const minutes = Math.round(seconds / 60);
  if (minutes < 120) return `${minutes} min`;
  const hours = Math.floor(minutes / 60);
  return hours < 48 ? `${hours} h ${String(minutes % 60).padStart(2, "0")} min` : `${Math.round(hours / 24)} d`;
}

export function ago(time, now = Date.now()) {
  if (!time) return "–";
  const seconds = (now - new Date(time).getTime()) / 1000;
  return seconds < 5 ? "now" : `${duration(seconds)} ago`;
}

const CONTROLS = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f]/g;
const INVISIBLE = /[\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]|[\u{e0000}-\u{e007f}]/gu;

// Text of a model as it is: what would hide, reorder or ring is written out.
export function visible(text) {
  return String(text ?? "")
    .replace(CONTROLS, (c) => (c === "\r" ? "␍" : c < " " ? String.fromCodePoint(0x2400 + c.codePointAt(0)) : code(c)))
    .replace(INVISIBLE, code);
}

const code = (c) => `⟨U+${c.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}⟩`;
