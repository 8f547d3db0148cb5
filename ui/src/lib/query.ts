/** Read something of the server and keep it while a component is shown. */
import { useCallback, useEffect, useRef, useState } from "preact/hooks";
import { ApiError } from "../api/client";

export interface Loaded<T> {
  data: T | undefined;
  error: ApiError | null;
  loading: boolean;
  /** Read again; what is shown stays until the answer comes. Calls during a read join it. */
  reload: () => void;
  /** Put a changed value in place, before the server is asked again. */
  set: (data: T) => void;
}

const kept = new Map<string, unknown>();
const MOST_KEPT = 60;
const RETRY_MS = 3_000;

function keep(key: string, data: unknown): void {
  kept.delete(key);
  kept.set(key, data);
  if (kept.size > MOST_KEPT) kept.delete(kept.keys().next().value as string);
}

/** `key` names what `load` reads: another key, another read; null reads nothing.
 *
 * What was read before under the key is shown at once, then read again.
 */
export function useLoad<T>(key: string | null, load: (signal: AbortSignal) => Promise<T>): Loaded<T> {
  const [, redraw] = useState(0);
  const latest = useRef(load);
  latest.current = load;
  const state = useRef<{ key: string | null; data: T | undefined; error: ApiError | null; busy: boolean; again: boolean; abort: AbortController | null; timer: number }>({
    key: null, data: undefined, error: null, busy: false, again: false, abort: null, timer: 0,
  });
  const current = state.current;
  if (current.key !== key) {
    current.abort?.abort();
    clearTimeout(current.timer);
    Object.assign(current, {
      key, data: key === null ? undefined : kept.get(key), error: null, busy: false, again: false, abort: null,
    });
  }

  const read = useCallback(async (): Promise<void> => {
    const now = state.current;
    const wanted = now.key;
    if (wanted === null) return;
    if (now.busy) {
      now.again = true;
      return;
    }
    const abort = new AbortController();
    Object.assign(now, { busy: true, again: false, abort });
    clearTimeout(now.timer);
    try {
      const data = await latest.current(abort.signal);
      if (now.key !== wanted || now.abort !== abort) return;
      keep(wanted, data);
      Object.assign(now, { data, error: null });
    } catch (error) {
      if (now.key !== wanted || now.abort !== abort) return;
      now.error = error instanceof ApiError ? error : new ApiError(0, "page", String(error), "");
      if (now.error.status === 0) now.timer = window.setTimeout(() => void read(), RETRY_MS);
    }
    now.busy = false;
    redraw((count) => count + 1);
    if (now.again) void read();
  }, []);

  useEffect(() => {
    void read();
  }, [key, read]);
  useEffect(
    () => () => {
      state.current.abort?.abort();
      clearTimeout(state.current.timer);
    },
    [],
  );
  const set = useCallback((data: T): void => {
    state.current.data = data;
    if (state.current.key !== null) keep(state.current.key, data);
    redraw((count) => count + 1);
  }, []);
  return { data: current.data, error: current.error, loading: current.data === undefined && !current.error, reload: read, set };
}

/** Call `run` soon and at most once per `wait_ms`, however often it is asked for. */
export function useThrottled(run: () => void, wait_ms: number): () => void {
  const latest = useRef(run);
  latest.current = run;
  const timer = useRef(0);
  useEffect(() => () => clearTimeout(timer.current), []);
  return useCallback(() => {
    if (timer.current) return;
    timer.current = window.setTimeout(() => {
      timer.current = 0;
      latest.current();
    }, wait_ms);
  }, [wait_ms]);
}
