/** Requests to the native API, as the person who is signed in.
 *
 * Owns: addresses under /v1, the header that proves a change comes from this page, errors.
 * Leaves: shapes of answers to model.ts, what is shown to the pages.
 * Always: an error holds the server's message and hint; a 401 anywhere shows the sign-in form.
 */
import { type Query, search } from "../lib/address";

export class ApiError extends Error {
  constructor(
    readonly status: number,
    readonly code: string,
    message: string,
    readonly hint: string,
  ) {
    super(message);
  }
}

let onSignedOut: () => void = () => {};

/** What happens when the session has ended. */
export function whenSignedOut(listener: () => void): void {
  onSignedOut = listener;
}

/** The address of something in a workspace; each part is a name, whatever letters it has. */
export function api(workspace: string, parts: readonly string[], query: Query = {}): string {
  return `/v1/workspaces/${[workspace, ...parts].map(encodeURIComponent).join("/")}${search(query)}`;
}

/** A file's address: its path keeps its slashes. */
export function fileUrl(workspace: string, parts: readonly string[], path: string): string {
  return `${api(workspace, parts)}/${path.split("/").map(encodeURIComponent).join("/")}`;
}

export interface Options {
  method?: string;
  body?: unknown;
  headers?: Record<string, string>;
  cache?: RequestCache;
  signal?: AbortSignal | undefined;
}

/** The response as it comes.
 *
 * Raises ApiError for any status from 400 up, and status 0 when the server can't be reached.
 */
export async function request(url: string, options: Options = {}): Promise<Response> {
  const method = options.method ?? "GET";
  const headers: Record<string, string> = { ...options.headers };
  if (method !== "GET") headers["X-Torchyard-Page"] = "1";
  if (options.body !== undefined) headers["Content-Type"] = "application/json";
  let response: Response;
  try {
    response = await fetch(url, {
      method,
      headers,
      body: options.body === undefined ? null : JSON.stringify(options.body),
      credentials: "same-origin",
      ...(options.cache ? { cache: options.cache } : {}),
      signal: options.signal ?? null,
    });
  } catch (error) {
    if (error instanceof DOMException && error.name === "AbortError") throw error;
    throw new ApiError(0, "unreachable", "the server can't be reached", "this page goes on trying");
  }
  if (response.ok) return response;
  const error = await refusal(response);
  if (error.status === 401) onSignedOut();
  throw error;
}

async function refusal(response: Response): Promise<ApiError> {
  let body: Record<string, unknown> = {};
  try {
    body = (await response.json()) as Record<string, unknown>;
  } catch {
    // A proxy's page, or nothing.
  }
  const inner = typeof body.error === "object" && body.error ? (body.error as Record<string, unknown>) : body;
  const text = (value: unknown): string => (typeof value === "string" ? value : "");
  const message = text(inner.message) || text(body.error) || `the server answered ${response.status}`;
  return new ApiError(response.status, text(inner.code), message, text(inner.hint));
}

export async function get<T>(url: string, signal?: AbortSignal): Promise<T> {
  return (await (await request(url, { signal })).json()) as T;
}

export async function send<T>(method: "POST" | "PUT" | "PATCH" | "DELETE", url: string, body?: unknown): Promise<T> {
  const response = await request(url, { method, body });
  const text = await response.text();
  return (text ? JSON.parse(text) : null) as T;
}

/** Bytes `start` up to `end` (not included) of a file, and the size of all of it. */
export async function range(
  url: string,
  start: number,
  end: number,
  signal?: AbortSignal,
): Promise<{ bytes: Uint8Array; size: number }> {
  if (end <= start) return { bytes: new Uint8Array(), size: start };
  const headers = { Range: `bytes=${start}-${end - 1}` };
  // A log grows: what the browser kept of it would be given as its end.
  const response = await request(url, { headers, signal, cache: "no-store" });
  const bytes = new Uint8Array(await response.arrayBuffer());
  const total = /\/(\d+)$/.exec(response.headers.get("Content-Range") ?? "")?.[1];
  if (response.status === 206) return { bytes, size: total ? Number(total) : start + bytes.length };
  return { bytes: bytes.subarray(start, end), size: bytes.length };
}
