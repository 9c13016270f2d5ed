// Everything the page asks the server.
import { useCallback, useEffect, useRef, useState } from "app/html.js";
import { onChange } from "app/live.js";
import { answerOf, isReport } from "app/report.js";

export const runPath = (id) => `/api/runs/${encodeURIComponent(id)}`;

export function query(parameters) {
  const filled = Object.entries(parameters).filter(([, value]) => value !== "" && value !== null && value !== undefined);
  return filled.length ? `?${new URLSearchParams(filled)}` : "";
}

export async function get(path) {
  return isReport ? answerOf(path) : ask(path, { headers: { Accept: "application/json" } });
}

export const post = (path, fields) => ask(path, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(fields) });

async function ask(path, options) {
  let response;
  try {
    response = await fetch(path, options);
  } catch {
    throw new Error("The server does not answer. Is `ragen view` still running?");
  }
  const body = await response.json().catch(() => ({ error: `The server answered ${response.status} without JSON.` }));
  if (!response.ok) throw new Error(body.error || `The server answered ${response.status}.`);
  return body;
}

// {data, error, reload} of a path; the old data stay until the new ones are there. A path of null asks nothing.
export function useGet(path) {
  const [answer, setAnswer] = useState({});
  const wanted = useRef(path);
  wanted.current = path;
  const reload = useCallback(async () => {
    if (path === null) return;
    try {
      const data = await get(path);
      if (wanted.current === path) setAnswer({ path, data });
    } catch (error) {
      if (wanted.current === path) setAnswer((old) => ({ path, data: old.path === path ? old.data : undefined, error }));
    }
  }, [path]);
  useEffect(() => {
    reload();
  }, [reload]);
  return { ...(answer.path === path ? answer : {}), stale: answer.data, reload };
}

// Calls `act(changed)` when one of these runs changed; no ids mean any run.
export function useLive(ids, act) {
  const latest = useRef(act);
  latest.current = act;
  const key = ids ? ids.join("\n") : null;
  useEffect(
    () => onChange((changed) => {
      if (key === null || key.split("\n").some((id) => id in changed)) latest.current(changed);
    }),
    [key],
  );
}

// A function that runs at most once in `wait` ms, and once more at the end.
export function useThrottled(act, wait) {
  const state = useRef({ timer: null, last: 0 });
  const latest = useRef(act);
  latest.current = act;
  useEffect(() => () => clearTimeout(state.current.timer), []);
  return useCallback(() => {
    const now = state.current;
    if (now.timer !== null) return;
    now.timer = setTimeout(() => {
      now.timer = null;
      now.last = Date.now();
      latest.current();
    }, Math.max(0, now.last + wait - Date.now()));
  }, [wait]);
}
