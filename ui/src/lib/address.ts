/** The page's address: where it is and what it shows there.
 *
 * Owns: addresses of all pages, reading and writing a query. Leaves: history to router.tsx.
 * Always: what a person chose on a page is in its query, so that the address can be shared; a
 * value that is the default is left out.
 */
export interface Address {
  path: string;
  query: URLSearchParams;
}

export const BASE = "/ui/";

export type Query = Record<string, string | readonly string[] | number | boolean | null | undefined>;

/** `section` is a page of the workspace, `names` what is looked at there. */
export function href(workspace: string, section: string, names: readonly string[] = [], query: Query = {}): string {
  const parts = ["workspaces", workspace, section, ...names].map(encodeURIComponent);
  return BASE + parts.join("/") + search(query);
}

export function jobHref(workspace: string, name: string, query: Query = {}): string {
  return href(workspace, "jobs", [name], query);
}

/** `?a=1&b=2&b=3`, without what is empty, false or null. */
export function search(query: Query): string {
  const text = toParams(query).toString();
  return text ? `?${text}` : "";
}

export function toParams(query: Query): URLSearchParams {
  const params = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    if (Array.isArray(value)) for (const each of value) params.append(name, String(each));
    else if (value !== null && value !== undefined && value !== "" && value !== false)
      params.append(name, value === true ? "1" : String(value));
  }
  return params;
}

/** A query with some of its values replaced; null, "" and false take one away. */
export function withQuery(query: URLSearchParams, changes: Query): URLSearchParams {
  const params = new URLSearchParams(query);
  for (const name of Object.keys(changes)) params.delete(name);
  for (const [name, value] of toParams(changes)) params.append(name, value);
  return params;
}

export interface Place {
  workspace: string;
  section: string;
  names: string[];
}

/** Where a path leads; null when it is not a page of a workspace. */
export function placeOf(path: string): Place | null {
  if (!path.startsWith(BASE)) return null;
  let parts: string[];
  try {
    parts = path.slice(BASE.length).split("/").filter(Boolean).map(decodeURIComponent);
  } catch {
    return null;
  }
  const [first, workspace, section = "jobs", ...names] = parts;
  if (first !== "workspaces" || !workspace) return null;
  return { workspace, section, names };
}
