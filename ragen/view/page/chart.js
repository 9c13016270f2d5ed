// One chart: uPlot for the canvas, our own legend, which names the step under the pointer and every value there.
import uPlot from "uplot";
import { number } from "app/format.js";
import { html, useEffect, useLayoutEffect, useMemo, useRef, useState } from "app/html.js";
import { useTheme } from "app/theme_switch.js";

// Okabe and Ito's palette, as in ragen/plotting/style.py; blue and black have lighter twins on dark ground.
const PALETTES = {
  light: ["#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9", "#000000", "#666666"],
  dark: ["#56B4E9", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#F0E442", "#FFFFFF", "#999999"],
};
const DASHES = [undefined, [8, 4], [2, 3], [10, 3, 2, 3]];

export const colourOf = (theme, i) => PALETTES[theme][i % PALETTES[theme].length];
const dashOf = (i) => DASHES[Math.floor(i / PALETTES.light.length) % DASHES.length];

const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const faded = (colour, share) => colour + Math.round(share * 255).toString(16).padStart(2, "0");

// Values as areas on top of each other, the first at the bottom.
function stack(columns) {
  const sums = columns[0].map(() => 0);
  return columns.map((values) => values.map((value, i) => (sums[i] += value ?? 0)));
}

// {x, columns, series} -> uPlot's data and options. Bands and stacked areas are drawn as filled pairs of series.
function build(plot, { theme, isLog, hidden, width, height, xLabel, onCursor, syncKey }) {
  const shown = plot.series.map((one, i) => ({ ...one, colour: colourOf(theme, one.colour ?? i), isShown: !hidden.has(one.label) }));
  const data = [plot.x];
  const series = [{ label: xLabel }];
  const bands = [];
  const few = plot.x.length < 40;
  const push = (values, options) => {
    data.push(values);
    series.push({ spanGaps: true, points: { show: false }, ...options });
    return series.length - 1;
  };
  if (plot.isStacked) {
    const visible = shown.filter((one) => one.isShown);
    const tops = visible.length ? stack(visible.map((one) => one.values)) : [];
    visible.forEach((one, i) => {
      const at = push(tops[i], { stroke: one.colour, width: 1, fill: i === 0 ? faded(one.colour, 0.55) : undefined });
      if (i > 0) bands.push({ series: [at, at - 1], fill: faded(one.colour, 0.55) });
    });
  } else {
    for (const one of shown) {
      if (one.low && one.high) {
        const high = push(one.high, { stroke: "transparent", show: one.isShown, width: 0 });
        const low = push(one.low, { stroke: "transparent", show: one.isShown, width: 0 });
        bands.push({ series: [high, low], fill: faded(one.colour, theme === "dark" ? 0.22 : 0.15) });
      }
      const dots = one.values.filter((value) => value !== null).length;
      push(one.values, {
        stroke: one.colour, width: one.isThin ? 1 : 2, dash: one.dash ?? dashOf(one.colour ?? 0), show: one.isShown,
        points: { show: few || dots < 40, size: one.isThin ? 3 : 5, fill: one.colour },
      });
    }
  }
  const grid = { stroke: css("--grid"), width: 1 };
  const axis = { stroke: css("--muted"), font: "11px system-ui, sans-serif", grid, ticks: { show: false } };
  const options = {
    width, height, series, bands, padding: [8, 18, 0, 0],
    legend: { show: false },
    cursor: {
      sync: syncKey ? { key: syncKey, setSeries: false } : undefined,
      drag: { x: true, y: false },
      points: { size: 7 },
      focus: { prox: -1 },
    },
    scales: { x: { time: false }, y: { distr: isLog ? 3 : 1, range: isLog ? undefined : (u, low, high) => yRange(plot, low, high) } },
    axes: [
      { ...axis, size: 26, gap: 4, grid: { show: false }, values: (u, ticks) => ticks.map((tick) => (Number.isInteger(tick) || xLabel !== "step" ? number(tick) : "")) },
      { ...axis, size: 48, gap: 4, values: (u, ticks) => ticks.map((tick) => (tick === null ? "" : number(tick))) },
    ],
    hooks: {
      setCursor: [(u) => onCursor(u.cursor.idx ?? null)],
      draw: plot.lines?.length ? [(u) => drawLines(u, plot.lines)] : [],
    },
  };
  return { options, data: isLog ? data.map((values, i) => (i ? values.map((v) => (v !== null && v > 0 ? v : null)) : values)) : data };
}

function yRange(plot, low, high) {
  const levels = (plot.lines ?? []).map((line) => line.value);
  if (plot.range) return [plot.range[0] - 0.02, plot.range[1] + 0.02];
  if (low === null || high === null) return [0, 1];
  low = Math.min(low, ...levels);
  high = Math.max(high, ...levels);
  if (plot.fromZero || plot.isStacked) low = Math.min(0, low);
  const room = (high - low || Math.abs(high) || 1) * 0.06;
  return [(plot.fromZero || plot.isStacked) && low === 0 ? 0 : low - room, high + room];
}

// Horizontal lines with a name at their right end, such as what chance and the solver reach.
function drawLines(u, lines) {
  const { ctx, bbox } = u;
  const ratio = devicePixelRatio || 1;
  ctx.save();
  ctx.beginPath();
  ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
  ctx.clip();
  ctx.strokeStyle = ctx.fillStyle = css("--muted");
  ctx.lineWidth = ratio;
  ctx.setLineDash([3 * ratio, 3 * ratio]);
  ctx.font = `${11 * ratio}px system-ui, sans-serif`;
  ctx.textAlign = "right";
  for (const { label, value } of lines) {
    const y = u.valToPos(value, "y", true);
    ctx.beginPath();
    ctx.moveTo(bbox.left, y);
    ctx.lineTo(bbox.left + bbox.width, y);
    ctx.stroke();
    const isHigh = y - bbox.top < 16 * ratio;
    ctx.textBaseline = isHigh ? "top" : "bottom";
    ctx.fillText(label, bbox.left + bbox.width - 4 * ratio, y + (isHigh ? 3 : -2) * ratio);
  }
  ctx.restore();
}

function useWidth(element) {
  const [width, setWidth] = useState(0);
  useLayoutEffect(() => {
    const measure = () => setWidth(Math.floor(element.current.clientWidth));
    measure();
    const observer = new ResizeObserver(measure);
    observer.observe(element.current);
    return () => observer.disconnect();
  }, []);
  return width;
}

const lastIndex = (values) => values.findLastIndex((value) => value !== null);

function Legend({ plot, theme, cursor, hidden, toggle, xLabel }) {
  const at = cursor === null || cursor >= plot.x.length ? null : cursor;
  const value = (one) => one.values[at ?? lastIndex(one.values)] ?? null;
  const band = (one) => {
    const i = at ?? lastIndex(one.values);
    return one.low && one.low[i] !== null && one.low[i] !== undefined ? ` [${number(one.low[i])}, ${number(one.high[i])}]` : "";
  };
  return html`<div class="legend">
    <span class="legend-x">${at === null ? "last" : `${xLabel} ${number(plot.x[at])}`}</span>
    ${plot.series.map((one, i) => html`
      <button type="button" class="legend-entry" aria-pressed=${!hidden.has(one.label)} onClick=${() => toggle(one.label)} key=${one.label}>
        <svg class="swatch" width="16" height="8" aria-hidden="true">
          <line x1="0" y1="4" x2="16" y2="4" stroke=${colourOf(theme, one.colour ?? i)} stroke-width=${plot.isStacked ? 8 : one.isThin ? 1.5 : 2.5}
            stroke-dasharray=${(one.dash ?? dashOf(one.colour ?? 0) ?? []).map((d) => d / 1.6).join(" ")} />
        </svg>${one.label} <b>${number(value(one))}</b><span class="muted">${band(one)}</span>
      </button>`)}
  </div>`;
}

// A chart with its title, the glossary's sentences, a log switch and its legend.
export function Chart({ plot, notes = [], xLabel = "step", syncKey, height = 190 }) {
  const theme = useTheme();
  const box = useRef(null);
  const chart = useRef(null);
  const width = useWidth(box);
  const [cursor, setCursor] = useState(null);
  const [isLog, setLog] = useState(false);
  const [isZoomed, setZoomed] = useState(false);
  const [hidden, setHidden] = useState(new Set());
  const toggle = (label) => setHidden((old) => {
    const changed = new Set(old);
    if (!changed.delete(label)) changed.add(label);
    return changed;
  });
  const shape = useMemo(
    () => JSON.stringify([plot.series.map((one) => [one.label, one.colour, Boolean(one.low)]), plot.lines, plot.isStacked]), [plot]);
  const make = () => build(plot, { theme, isLog, hidden, width, height, xLabel, onCursor: setCursor, syncKey });

  // 1. The canvas is made anew when its looks change; 2. new values only are handed over.
  useEffect(() => {
    if (!width) return;
    const { options, data } = make();
    options.hooks.setSelect = [(u) => setZoomed(u.select.width > 0)];
    chart.current = new uPlot(options, data, box.current);
    const reset = () => setZoomed(false);
    chart.current.over.addEventListener("dblclick", reset);
    setZoomed(false);
    return () => {
      chart.current.destroy();
      chart.current = null;
    };
  }, [width, theme, isLog, hidden, shape, height, xLabel, syncKey]);
  const isFirst = useRef(true);
  useEffect(() => {
    if (isFirst.current) {
      isFirst.current = false;
      return;
    }
    if (!chart.current) return;
    const { min, max } = chart.current.scales.x;
    chart.current.setData(make().data, !isZoomed);
    if (isZoomed) chart.current.setScale("x", { min, max });
  }, [plot]);
  const unzoom = () => {
    chart.current.setScale("x", { min: plot.x[0], max: plot.x.at(-1) });
    setZoomed(false);
  };

  return html`<figure class=${`chart ${plot.isWide ? "wide" : ""}`} data-chart=${plot.title}>
    <figcaption>
      <h3>${plot.title}</h3>
      <span class="chart-tools">
        ${isZoomed && html`<button type="button" class="quiet" onClick=${unzoom}>Whole run</button>`}
        ${!plot.isStacked && html`<button type="button" class="quiet" aria-pressed=${isLog} onClick=${() => setLog(!isLog)}>log</button>`}
      </span>
    </figcaption>
    <${Legend} plot=${plot} theme=${theme} cursor=${cursor} hidden=${hidden} toggle=${toggle} xLabel=${xLabel} />
    <div class="canvas" ref=${box} role="img" aria-label=${described(plot, xLabel)}></div>
    ${notes.length > 0 && html`<p class="chart-note">${notes.join(" ")}</p>`}
  </figure>`;
}

// What a reader without the picture should know.
function described(plot, xLabel) {
  const last = plot.series.map((one) => `${one.label} ${number(one.values[lastIndex(one.values)])}`);
  return `${plot.title} over ${xLabel}; last values: ${last.join(", ")}`;
}

// A validation curve of a few pixels, for a row of the list.
export function Sparkline({ steps, values, low, high, width = 96, height = 24 }) {
  const theme = useTheme();
  if (!values || values.length === 0) return null;
  const first = steps[0];
  const span = steps.at(-1) - first || 1;
  const x = (i) => (2 + ((steps[i] - first) / span) * (width - 6)).toFixed(1);
  const y = (value) => (2 + (1 - value) * (height - 4)).toFixed(1);
  const colour = colourOf(theme, 0);
  const points = values.map((value, i) => `${x(i)},${y(value)}`);
  const area = low && high && [...high.map((v, i) => `${x(i)},${y(v)}`), ...low.map((v, i) => `${x(i)},${y(v)}`).reverse()];
  return html`<svg class="sparkline" width=${width} height=${height} viewBox=${`0 0 ${width} ${height}`} aria-hidden="true">
    ${area && html`<polygon points=${area.join(" ")} fill=${colour} opacity="0.16" />`}
    <polyline points=${points.join(" ")} fill="none" stroke=${colour} stroke-width="1.5" stroke-linejoin="round" />
    <circle cx=${x(values.length - 1)} cy=${y(values.at(-1))} r="2.2" fill=${colour} />
  </svg>`;
}
