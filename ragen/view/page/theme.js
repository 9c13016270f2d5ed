// Light or dark before the first paint: what was chosen here, else what the system prefers.
{
  let chosen = null;
  try {
    chosen = localStorage.getItem("ragen-theme");
  } catch {
    // Storage may be switched off; the system's preference holds then.
  }
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
}
