// The board of an episode, drawn as a grid of cells, Sudoku and 2048 with their numbers; bandits as their arms; other environments as their text.
import { html } from "app/html.js";
import { Text } from "app/parts.js";
import { visible } from "app/format.js";

// Kind of cell -> the sign drawn on it and its name for those who do not see it.
const SIGNS = {
  wall: ["", "wall"], floor: ["", "floor"], target: ["◎", "target"], box: ["▣", "box"], box_on_target: ["▣", "box on target"],
  player: ["☻", "player"], player_on_target: ["☻", "player on target"], frozen: ["", "ice"], hole: ["●", "hole"], goal: ["⚑", "goal"],
  player_in_hole: ["☻", "player in a hole"], player_on_goal: ["☻", "player on the goal"],
};

function described(cells) {
  const counts = new Map();
  for (const kind of cells.flat()) counts.set(kind, (counts.get(kind) ?? 0) + 1);
  const where = cells.flatMap((row, r) => row.flatMap((kind, c) => (kind.startsWith("player") ? [`player in row ${r}, column ${c}`] : [])));
  const rest = [...counts].filter(([kind]) => !/^(floor|frozen|wall|player)/.test(kind)).map(([kind, n]) => `${n} ${SIGNS[kind]?.[1] ?? kind}`);
  return `Board of ${cells.length} rows and ${cells[0]?.length ?? 0} columns: ${[...where, ...rest].join(", ")}`;
}

function Grid({ kind: world, cells, isSmall }) {
  const size = isSmall ? "small" : cells[0].length <= 7 ? "large" : "";
  return html`<div class=${`board board-${world} ${size}`} role="img" aria-label=${described(cells)}>
    ${cells.map((row, r) => html`<div class="board-row" key=${r}>${row.map((kind, c) => html`
      <span key=${c} class=${`cell cell-${kind}`} title=${SIGNS[kind]?.[1] ?? kind}>${SIGNS[kind]?.[0] ?? "?"}</span>`)}</div>`)}
  </div>`;
}

// The numbers of Sudoku and 2048, and what is said below them.
function Numbers({ kind: world, values, said, isSmall }) {
  const size = isSmall ? "small" : values.length <= 4 ? "large" : "";
  const count = values.flat().filter(Boolean).length;
  const spoken = values.map((row) => row.map((value) => value || "empty").join(" ")).join("; ");
  const width = Math.max(...values.flat().map((value) => value.length));
  return html`<div class=${`board board-${world} boxes-${Math.sqrt(values.length)} ${size} ${width > 2 ? "width-wide" : ""}`} role="img"
      aria-label=${`Board of ${values.length} rows with ${count} numbers: ${spoken}`}>
    ${values.map((row, r) => html`<div class="board-row" key=${r}>${row.map((value, c) => html`
      <span key=${c} class=${`cell ${value ? "cell-number" : "cell-empty"}`}>${visible(value)}</span>`)}</div>`)}
  </div>${said && html`<${Text} text=${said} name="board" />`}`;
}

function Arms({ arms, pulled, points }) {
  return html`<ul class="arms">${arms.map((arm) => html`<li key=${arm} class=${arm === pulled ? "arm pulled" : "arm"}>
    ${visible(arm)}${arm === pulled && html` <small>pulled, ${visible(points)} points</small>`}</li>`)}</ul>`;
}

export function Board({ frame, isSmall = false }) {
  if (frame?.rows) return html`<${Grid} kind=${frame.kind} cells=${frame.rows} isSmall=${isSmall} />`;
  if (frame?.values) return html`<${Numbers} kind=${frame.kind} values=${frame.values} said=${frame.said} isSmall=${isSmall} />`;
  if (frame?.arms) return html`<${Arms} arms=${frame.arms} pulled=${frame.pulled} points=${frame.points} />`;
  return html`<div class="board-text" tabindex="0" role="group" aria-label="State"><${Text} text=${frame?.text ?? ""} name="board" /></div>`;
}
