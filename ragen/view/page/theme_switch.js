// Light, dark, or as the system prefers; everything that draws asks useTheme().
import { html, useEffect, useState } from "app/html.js";

const system = matchMedia("(prefers-color-scheme: dark)");
const listeners = new Set();

export const chosenTheme = () => document.documentElement.dataset.theme ?? "system";
const current = () => (chosenTheme() === "system" ? (system.matches ? "dark" : "light") : chosenTheme());

function tell() {
  for (const listen of [...listeners]) listen();
}
system.addEventListener("change", tell);

function choose(theme) {
  if (theme === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
  try {
    if (theme === "system") localStorage.removeItem("ragen-theme");
    else localStorage.setItem("ragen-theme", theme);
  } catch {
    // Without storage the choice lasts as long as the page.
  }
  tell();
}

export function useTheme() {
  const [theme, setTheme] = useState(current());
  useEffect(() => {
    const listen = () => setTheme(current());
    listeners.add(listen);
    return () => listeners.delete(listen);
  }, []);
  return theme;
}

export function ThemeSwitch() {
  const [theme, setTheme] = useState(chosenTheme());
  const change = (event) => {
    setTheme(event.target.value);
    choose(event.target.value);
  };
  return html`<label class="theme-switch"><span class="sr-only">Colours</span>
    <select value=${theme} onChange=${change}>
      <option value="system">System</option><option value="light">Light</option><option value="dark">Dark</option>
    </select>
  </label>`;
}
