// The metrics of runs as columns over steps; new rows are fetched from the byte where the last answer ended.
import { get, query, runPath, useLive, useThrottled } from "app/api.js";
import { useEffect, useMemo, useRef, useState } from "app/html.js";

const empty = () => ({ offset: 0, version: "", rows: new Map(), names: new Set() });

// A step may come twice, as after a resume: its later values win, the others stay.
function add(store, answer) {
  const names = Object.keys(answer.columns);
  for (const name of names) store.names.add(name);
  answer.steps.forEach((step, i) => {
    const row = store.rows.get(step) ?? {};
    for (const name of names) {
      const value = answer.columns[name][i];
      if (value !== null && value !== undefined) row[name] = value;
    }
    store.rows.set(step, row);
  });
  store.offset = answer.offset;
  store.version = answer.version ?? "";
}

async function extend(store, id) {
  let answer;
  do {
    answer = await get(runPath(id) + "/series" + query({ offset: store.offset, version: store.version }));
    if (answer.reset) Object.assign(store, empty());
    add(store, answer);
  } while (answer.more);
}

// What charts read: {steps, column(name) -> values or null, names}.
export function tableOf(store) {
  const steps = [...store.rows.keys()].sort((a, b) => a - b);
  const rows = steps.map((step) => store.rows.get(step));
  const names = [...store.names].sort();
  const cache = new Map();
  const column = (name) => {
    if (!store.names.has(name)) return null;
    if (!cache.has(name)) cache.set(name, rows.map((row) => row[name] ?? null));
    return cache.get(name);
  };
  return { steps, names, column };
}

// {id: table} of some runs, kept up to date; and what went wrong, if anything.
export function useTables(ids) {
  const key = ids.join("\n");
  const stores = useRef(new Map());
  const [state, setState] = useState({ key: null, version: 0, error: null });
  const update = async () => {
    let error = null;
    for (const id of key ? key.split("\n") : []) {
      if (!stores.current.has(id)) stores.current.set(id, empty());
      try {
        await extend(stores.current.get(id), id);
      } catch (problem) {
        error = problem;
      }
    }
    setState((old) => ({ key, version: old.version + 1, error }));
  };
  const busy = useRef(Promise.resolve());
  const soon = useThrottled(() => {
    busy.current = busy.current.then(update, update);
  }, 500);
  useEffect(soon, [key]);
  useLive(ids, soon);
  const tables = useMemo(() => {
    const made = {};
    for (const id of key ? key.split("\n") : []) {
      if (stores.current.has(id)) made[id] = tableOf(stores.current.get(id));
    }
    return made;
  }, [key, state.version]);
  return { tables, error: state.error, isLoaded: state.key === key };
}

export const AXES = { step: "step", time: "hours", tokens: "tokens" };

// The x of each row: the step, the hours of work so far, or the tokens so far.
export function axisOf(table, axis) {
  if (axis === "time") {
    const total = table.column("timing_s/total");
    if (total) return filled(total.map((seconds) => (seconds === null ? null : seconds / 3600)));
  }
  if (axis === "tokens") {
    const tokens = table.column("perf/total_num_tokens");
    let sum = 0;
    if (tokens) return tokens.map((count) => (sum += count ?? 0));
  }
  return table.steps;
}

// Axes must rise: a row without a value gets that of the row before it.
function filled(values) {
  let last = 0;
  return values.map((value) => (last = Math.max(last, value ?? last)));
}
