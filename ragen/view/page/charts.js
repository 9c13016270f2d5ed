// The charts of one or several tables, grouped by question.
import { get, query } from "app/api.js";
import { Chart } from "app/chart.js";
import { html, useEffect, useMemo, useState } from "app/html.js";
import { AXES, axisOf } from "app/series.js";

const sentences = new Map(); // metric -> the glossary's sentence, null while unknown there

// The sentences of these metrics, asked for once per page.
export function useGlossary(names) {
  const [, redraw] = useState(0);
  const key = [...new Set(names)].sort().join(",");
  useEffect(() => {
    const missing = key.split(",").filter((name) => name && !sentences.has(name));
    if (missing.length === 0) return;
    for (const name of missing) sentences.set(name, null);
    const parts = [];
    for (let i = 0; i < missing.length; i += 100) parts.push(missing.slice(i, i + 100)); // addresses stay short
    Promise.all(parts.map((part) => get("/api/glossary" + query({ names: part.join(",") }))))
      .then((answers) => {
        for (const answer of answers) for (const [name, text] of Object.entries(answer)) sentences.set(name, text);
        redraw((n) => n + 1);
      })
      .catch(() => missing.forEach((name) => sentences.delete(name))); // asked again with the next chart
  }, [key]);
  return sentences;
}

// A chart definition filled with a table's columns.
export function filled(chart, table, axis) {
  const column = (name) => (name ? table.column(name) : null);
  return {
    ...chart,
    x: axisOf(table, axis),
    series: chart.series.map((one) => ({ ...one, values: column(one.name), low: column(one.low), high: column(one.high) })),
  };
}

// The sentences of a chart; many series need the first two only, the legend names the rest.
export function notesOf(chart, glossary) {
  const known = [...new Set(chart.series.map((one) => glossary.get(one.name)).filter(Boolean))];
  if (known.length > 1 && (chart.isStacked || known.length > 3)) {
    return chart.series.map((one) => glossary.get(one.name) && `${capital(one.label)}: ${glossary.get(one.name)}`).filter(Boolean);
  }
  return known;
}

const capital = (text) => text[0].toUpperCase() + text.slice(1);

export function Question({ title, id, plots, glossary, axis }) {
  if (plots.length === 0) return null;
  return html`<section class="question" aria-labelledby=${`q-${id}`}>
    <h2 id=${`q-${id}`}>${title}</h2>
    <div class="charts">${plots.map((plot) => html`
      <${Chart} key=${plot.title} plot=${plot} notes=${notesOf(plot, glossary)} xLabel=${AXES[axis]} syncKey="run" />`)}</div>
  </section>`;
}

const MOST = 24;

// Any metric by its name.
export function AnyMetric({ names, plotOf, axis }) {
  const [text, setText] = useState("");
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  const found = useMemo(
    () => (words.length ? names.filter((name) => words.every((word) => name.toLowerCase().includes(word))) : []), [names, text]);
  const shown = found.slice(0, MOST);
  const glossary = useGlossary(shown);
  return html`<section class="question" aria-labelledby="q-any">
    <h2 id="q-any">Any metric</h2>
    <div class="filters"><label>Name <input type="search" value=${text} onInput=${(event) => setText(event.target.value)} placeholder="grad_norm task" /></label>
      <span class="muted">${words.length ? `${found.length} of ${names.length}${found.length > MOST ? `, the first ${MOST} are drawn` : ""}` : `${names.length} metrics; type words of a name`}</span></div>
    <div class="charts">${shown.map((name) => {
      const plot = plotOf(name);
      return plot && html`<${Chart} key=${name} plot=${plot} notes=${notesOf(plot, glossary)} xLabel=${AXES[axis]} syncKey="run" />`;
    })}</div>
  </section>`;
}
