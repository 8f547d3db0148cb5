/** Who has to be told that colours changed: charts, which draw on a canvas. */
const listeners = new Set<() => void>();

/** Returns what ends it. */
export function onTheme(listener: () => void): () => void {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

export function themeChanged(): void {
  for (const listener of listeners) listener();
}
