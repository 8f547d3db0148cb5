/** Moves between pages without loading them anew, by the browser's history.
 *
 * Links are plain `<a href>`: one listener takes the clicks on those that stay in the page.
 */
import { useEffect, useState } from "preact/hooks";
import { type Address, BASE, type Query, withQuery } from "./address";

const listeners = new Set<() => void>();

export function address(): Address {
  return { path: location.pathname, query: new URLSearchParams(location.search) };
}

export function navigate(to: string, replace = false): void {
  if (to === location.pathname + location.search) return;
  if (replace) history.replaceState(null, "", to);
  else history.pushState(null, "", to);
  if (!replace) scrollTo(0, 0);
  tell();
}

/** Change the query of the page that is shown. Writing in a field replaces, choosing pushes. */
export function setQuery(changes: Query, replace = true): void {
  const { path, query } = address();
  const text = withQuery(query, changes).toString();
  const to = path + (text ? `?${text}` : "");
  if (to === location.pathname + location.search) return;
  if (replace) history.replaceState(null, "", to);
  else history.pushState(null, "", to);
  tell();
}

export function useAddress(): Address {
  const [current, setCurrent] = useState(address);
  useEffect(() => {
    const update = (): void => setCurrent(address());
    listeners.add(update);
    update();
    return () => void listeners.delete(update);
  }, []);
  return current;
}

function tell(): void {
  for (const listener of [...listeners]) listener();
}

function onClick(event: MouseEvent): void {
  if (event.defaultPrevented || event.button !== 0) return;
  if (event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
  const link = (event.target as Element | null)?.closest?.("a[href]");
  if (!(link instanceof HTMLAnchorElement)) return;
  if (link.target || link.hasAttribute("download")) return;
  if (link.origin !== location.origin || !link.pathname.startsWith(BASE)) return;
  event.preventDefault();
  navigate(link.pathname + link.search);
}

export function startRouter(): void {
  addEventListener("popstate", tell);
  document.addEventListener("click", onClick);
}
