// The frame of all pages: which route shows what.
import { Compare } from "app/compare.js";
import { Episode } from "app/episode.js";
import { Episodes } from "app/episodes.js";
import { Filter } from "app/filter.js";
import { Gradients } from "app/gradients.js";
import { Group } from "app/group.js";
import { visible } from "app/format.js";
import { html, render, useEffect, useState } from "app/html.js";
import { onConnection } from "app/live.js";
import { Play } from "app/play.js";
import { answerOf, isReport, startOf } from "app/report.js";
import { link, useRoute } from "app/router.js";
import { Run } from "app/run.js";
import { Runs } from "app/runs.js";
import { Sweep, Sweeps } from "app/sweeps.js";
import { ThemeSwitch } from "app/theme_switch.js";

function Connection() {
  const [isConnected, setConnected] = useState(null);
  useEffect(() => onConnection(setConnected), []);
  if (isConnected === null) return null;
  return html`<span class=${`connection ${isConnected ? "" : "lost"}`} role="status">
    <span aria-hidden="true">${isConnected ? "●" : "○"}</span> ${isConnected ? "live" : "no connection"}</span>`;
}

// In place of the connection: when the report was made, and what it does not hold.
function Report() {
  const [report, setReport] = useState(null);
  useEffect(() => {
    answerOf("/api/report").then((found) => {
      setReport(found);
      if (!location.hash && found.runs.length === 1) location.replace(startOf(found));
    });
  }, []);
  if (!report) return null;
  return html`<p class="report-note muted">Report of ${new Date(report.made_at).toLocaleString("en-GB", { dateStyle: "medium", timeStyle: "short" })}, written by${" "}
    <code>ragen view --export</code>. ${report.left_out.length > 0 && `Left out: ${report.left_out.map(visible).join(" ")}`}</p>`;
}

function Page({ parts, search }) {
  const [kind, id, view, ...rest] = parts;
  if (kind === undefined || kind === "runs") return html`<${Runs} search=${search} />`;
  if (kind === "sweeps") return html`<${Sweeps} />`;
  if (kind === "sweep" && id) return html`<${Sweep} id=${id} key=${id} />`;
  if (kind === "compare" && id) return html`<${Compare} ids=${parts.slice(1)} search=${search} />`;
  if (kind === "play") return html`<${Play} search=${search} />`;
  if (kind === "run" && id) {
    if (view === undefined) return html`<${Run} id=${id} search=${search} key=${id} />`;
    if (view === "episodes") return html`<${Episodes} id=${id} search=${search} key=${id} />`;
    if (view === "filter") return html`<${Filter} id=${id} search=${search} key=${id} />`;
    if (view === "gradients") return html`<${Gradients} id=${id} search=${search} key=${id} />`;
    if (view === "play") return html`<${Play} id=${id} search=${search} key=${id} />`;
    if (view === "episode" && rest.length === 2) {
      return html`<${Episode} id=${id} file=${rest[0]} index=${rest[1]} search=${search} key=${rest.join("/")} />`;
    }
    if (view === "group" && rest.length === 2) {
      return html`<${Group} id=${id} file=${rest[0]} group=${rest[1]} key=${rest.join("/")} />`;
    }
  }
  return html`<p class="problem" role="alert">There is no such page. <a href="#/runs">All runs</a></p>`;
}

function App() {
  const { parts, search } = useRoute();
  const key = parts.join("/");
  useEffect(() => {
    scrollTo(0, 0);
  }, [key]);
  useEffect(() => {
    document.title = ["ragen view", ...parts.slice(1, 3)].join(" · ");
  }, [key]);
  const skip = (event) => {
    event.preventDefault();
    document.getElementById("content").focus();
  };
  return html`
    <a class="skip" href="#content" onClick=${skip}>To the content</a>
    <header class="top">
      <a class="brand" href=${link(["runs"])}>ragen <b>view</b></a>
      <nav class="top-links" aria-label="All">${[["runs", "Runs"], ["sweeps", "Sweeps"], ["play", "Play"]].filter(([name]) => !isReport || name !== "play").map(([name, label]) => html`
        <a key=${name} href=${link([name])} aria-current=${(parts[0] ?? "runs") === name ? "page" : undefined}>${label}</a>`)}</nav>
      <span class="spacer"></span>
      ${isReport ? html`<span class="connection">report</span>` : html`<${Connection} />`}
      <${ThemeSwitch} />
    </header>
    <main id="content" tabindex="-1">${isReport && html`<${Report} />`}<${Page} parts=${parts} search=${search} /></main>`;
}

render(html`<${App} />`, document.getElementById("app"));
