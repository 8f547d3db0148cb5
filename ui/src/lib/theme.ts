/** Dark or light: the system's choice, or the person's, kept in this browser. */
import { themeChanged } from "./themeChange";

export type Theme = "system" | "light" | "dark";

const KEY = "torchyard.theme";
const system = matchMedia("(prefers-color-scheme: dark)");

export function theme(): Theme {
  const kept = localStorage.getItem(KEY);
  return kept === "light" || kept === "dark" ? kept : "system";
}

export function setTheme(chosen: Theme): void {
  if (chosen === "system") localStorage.removeItem(KEY);
  else localStorage.setItem(KEY, chosen);
  applyTheme();
}

export function isDark(): boolean {
  const chosen = theme();
  return chosen === "system" ? system.matches : chosen === "dark";
}

/** Call it once at the start; it follows the system from then on. */
export function applyTheme(): void {
  document.documentElement.dataset.theme = isDark() ? "dark" : "light";
  themeChanged();
}

system.addEventListener("change", applyTheme);
addEventListener("storage", (event) => event.key === KEY && applyTheme());
