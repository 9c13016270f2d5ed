// News of changed runs. A browser allows six connections per host, so all tabs share one through a worker.
import { isReport } from "app/report.js";

const WORKER = "/assets/live_worker.js";
const listeners = new Set();
let isStarted = false;
const stateListeners = new Set();
let isConnected = null;

function deliver(message) {
  if (message.kind === "runs") for (const listen of [...listeners]) listen(message.changed);
  if (message.kind === "state" && message.isConnected !== isConnected) {
    isConnected = message.isConnected;
    for (const listen of [...stateListeners]) listen(isConnected);
  }
}

// Under the page's policy a worker's address must come from the one place that makes such addresses: here.
function workerAddress() {
  if (!globalThis.trustedTypes) return WORKER;
  return trustedTypes.createPolicy("ragen", { createScriptURL: () => WORKER }).createScriptURL("");
}

function start() {
  isStarted = true;
  if (typeof SharedWorker === "function") {
    const worker = new SharedWorker(workerAddress(), { name: "ragen-live" });
    worker.port.onmessage = (event) => deliver(event.data);
    worker.port.start();
    addEventListener("pagehide", () => worker.port.postMessage("leave"));
    addEventListener("pageshow", (event) => event.persisted && worker.port.postMessage("join"));
    return;
  }
  const source = new EventSource("/api/events");
  source.addEventListener("runs", (event) => deliver({ kind: "runs", changed: JSON.parse(event.data).changed }));
  source.onopen = () => deliver({ kind: "state", isConnected: true });
  source.onerror = () => deliver({ kind: "state", isConnected: false });
}

export function onChange(listen) {
  if (!isStarted && !isReport) start();
  listeners.add(listen);
  return () => listeners.delete(listen);
}

export function onConnection(listen) {
  if (!isStarted && !isReport) start();
  stateListeners.add(listen);
  if (isConnected !== null) listen(isConnected);
  return () => stateListeners.delete(listen);
}
