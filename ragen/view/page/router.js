// Hash routes, so that every view has a link: #/run/<id>/episodes?tag=Bandit. Ids are encoded as one segment.
import { useEffect, useState } from "app/html.js";

export function parse(hash) {
  const [path, search = ""] = hash.replace(/^#\/?/, "").split("?");
  const parts = path.split("/").filter(Boolean).map(decode);
  return { parts, search: Object.fromEntries(new URLSearchParams(search)) };
}

function decode(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part; // a link that was cut in the middle of an escape
  }
}

export function link(parts, search = {}) {
  const filled = Object.entries(search).filter(([, value]) => value !== "" && value !== null && value !== undefined);
  const query = filled.length ? `?${new URLSearchParams(filled)}` : "";
  return `#/${parts.map(encodeURIComponent).join("/")}${query}`;
}

// Changing a filter is no new page: Back leaves the list, whatever was typed into it.
export function replace(parts, search) {
  history.replaceState(null, "", link(parts, search));
  dispatchEvent(new HashChangeEvent("hashchange"));
}

export function useRoute() {
  const [hash, setHash] = useState(location.hash);
  useEffect(() => {
    const listen = () => setHash(location.hash);
    addEventListener("hashchange", listen);
    return () => removeEventListener("hashchange", listen);
  }, []);
  return parse(hash);
}
