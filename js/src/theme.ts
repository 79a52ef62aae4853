const system = () => globalThis.matchMedia?.("(prefers-color-scheme: dark)");

/** Whether the page around is dark: JupyterLab and Notebook, VS Code, marimo, else the system's choice. */
function isDark(): boolean {
  const marks = [document.body, document.documentElement];
  const light = document.body.dataset["jpThemeLight"];
  if (light) return light === "false";
  const has = (...names: string[]) => marks.some((one) => names.some((name) => one.classList.contains(name)));
  if (has("vscode-dark", "vscode-high-contrast", "dark", "dark-theme")) return !has("vscode-high-contrast-light");
  if (has("vscode-light", "light", "light-theme")) return false;
  return !!system()?.matches;
}

/** Keeps `data-theme` of an element true, also inside a shadow root, where the page's selectors do not reach. */
export function followTheme(element: HTMLElement): () => void {
  const apply = () => (element.dataset["theme"] = isDark() ? "dark" : "light");
  apply();
  const observer = new MutationObserver(apply);
  for (const target of [document.body, document.documentElement])
    observer.observe(target, { attributes: true, attributeFilter: ["class", "data-jp-theme-light"] });
  const dark = system();
  dark?.addEventListener("change", apply);
  return () => {
    observer.disconnect();
    dark?.removeEventListener("change", apply);
  };
}
