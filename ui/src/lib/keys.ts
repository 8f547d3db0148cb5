/** Keyboard shortcuts: one list, shown by `?`. */
import { useEffect, useRef } from "preact/hooks";

interface Shortcut {
  keys: string;
  label: string;
  run: () => void;
}

const shortcuts = new Map<string, Shortcut[]>();
let first = "";
let firstAt = 0;

/** What is at work now, for the dialog that lists them. */
export function activeShortcuts(): Shortcut[] {
  return [...shortcuts.values()].flatMap((list) => list.slice(-1));
}

/** `keys` is one key as in KeyboardEvent.key (`/`, `Escape`), or two after another (`g j`). */
export function useShortcut(keys: string, label: string, run: () => void): void {
  const latest = useRef(run);
  latest.current = run;
  useEffect(() => {
    const shortcut = { keys, label, run: () => latest.current() };
    shortcuts.set(keys, [...(shortcuts.get(keys) ?? []), shortcut]);
    return () => {
      const left = (shortcuts.get(keys) ?? []).filter((other) => other !== shortcut);
      if (left.length) shortcuts.set(keys, left);
      else shortcuts.delete(keys);
    };
  }, [keys, label]);
}

function isWriting(target: EventTarget | null): boolean {
  return target instanceof HTMLElement && (target.isContentEditable || /^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName));
}

function onKey(event: KeyboardEvent): void {
  if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
  if (isWriting(event.target) || document.querySelector("dialog[open]")) return;
  const pair = Date.now() - firstAt < 1000 ? `${first} ${event.key}` : "";
  const found = shortcuts.get(pair)?.at(-1) ?? shortcuts.get(event.key)?.at(-1);
  first = event.key;
  firstAt = Date.now();
  if (!found) return;
  event.preventDefault();
  first = "";
  found.run();
}

export function startKeys(): void {
  document.addEventListener("keydown", onKey);
}
