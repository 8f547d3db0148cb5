/** Whether a notebook is dark: as it says, else as it looks. */

/** JupyterLab and Notebook say it on the body, as does VS Code; others are told by their background. */
export function isDarkAround(element: Element): boolean {
  const { body } = document;
  const isLight = body.dataset.jpThemeLight;
  if (isLight) return isLight === "false";
  if (/\bvscode-(dark|high-contrast)\b/.test(body.className)) return !body.classList.contains("vscode-high-contrast-light");
  if (body.classList.contains("vscode-light")) return false;
  for (let at: Element | null = element; at; at = at.parentElement) {
    const dark = isDark(getComputedStyle(at).backgroundColor);
    if (dark !== null) return dark;
  }
  return false;
}

/** Of a computed colour; null when it is see-through. */
export function isDark(color: string): boolean | null {
  const [red, green, blue, alpha = 1] = (color.match(/[\d.]+/g) ?? []).map(Number);
  if (red === undefined || green === undefined || blue === undefined || alpha < 0.5) return null;
  return 0.299 * red + 0.587 * green + 0.114 * blue < 128;
}
