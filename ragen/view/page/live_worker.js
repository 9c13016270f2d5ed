// The one connection to /api/events, shared by all tabs.
const ports = new Set();
let source = null;
let state = null;

function tell(message) {
  for (const port of ports) port.postMessage(message);
}

function open() {
  source = new EventSource("/api/events");
  source.addEventListener("runs", (event) => tell({ kind: "runs", changed: JSON.parse(event.data).changed }));
  source.onopen = () => tell((state = { kind: "state", isConnected: true }));
  source.onerror = () => {
    tell((state = { kind: "state", isConnected: false }));
    // The browser gives up after a refused answer, as of a server that is just starting; try again.
    if (source.readyState === EventSource.CLOSED) setTimeout(open, 2000);
  };
}

self.onconnect = (event) => {
  const port = event.ports[0];
  ports.add(port);
  port.onmessage = (message) => {
    if (message.data === "leave") ports.delete(port);
    if (message.data === "join") ports.add(port);
  };
  if (state) port.postMessage(state);
  if (source === null) open();
};
