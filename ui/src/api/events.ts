/** The one stream of events of a workspace: what changed, so that pages read it again.
 *
 * Owns: one connection for all parts of the page, its resumption. Leaves: reading to the pages.
 * Always: after a broken line, a sleep or a hidden tab it goes on after the last event that came;
 * when the server can't say what was missed, or has no stream, listeners hear `refresh`.
 */
import { api } from "./client";
import { EventParser, type ServerEvent } from "./sse";
import type { JobRow, Value } from "./model";

export interface Events {
  /** `job` is null when it was deleted; `last_event` grows with stages and notices. */
  job: { name: string; last_event: number; job: JobRow | null };
  metrics: { job: string; metrics: { key: string; count: number; step: number; timestamp: number; value: Value }[] };
  logs: { job: string; logs: { path: string; attempt: number; size_bytes: number }[] };
  compute: { compute: string };
  /** Anything may have changed. */
  refresh: null;
}

export type Connection = "connecting" | "live" | "polling" | "offline";

type Listener<K extends keyof Events> = (data: Events[K]) => void;

/** Longer than the server's heartbeat: silence means the line is dead. */
const SILENCE_MS = 40_000;
const POLL_MS = 5_000;
const MOST_DELAY_MS = 15_000;

export class EventStream {
  #listeners = new Map<string, Set<(data: never) => void>>();
  #states = new Set<(state: Connection) => void>();
  #followed = new Map<string, number>();
  #lastId = "";
  #abort: AbortController | null = null;
  #silence = 0;
  #retry = 0;
  #failures = 0;
  #refollow = 0;
  #wasLive = false;
  #closed = false;
  state: Connection = "connecting";

  constructor(private readonly workspace: string) {
    document.addEventListener("visibilitychange", this.#onWake);
    addEventListener("online", this.#onWake);
    void this.#open();
  }

  on<K extends keyof Events>(type: K, listener: Listener<K>): () => void {
    const set = this.#listeners.get(type) ?? new Set();
    set.add(listener as (data: never) => void);
    this.#listeners.set(type, set);
    return () => void set.delete(listener as (data: never) => void);
  }

  onState(listener: (state: Connection) => void): () => void {
    this.#states.add(listener);
    return () => void this.#states.delete(listener);
  }

  /** Ask for the metrics and logs of a job, too. Returns what ends it. */
  follow(job: string): () => void {
    this.#followed.set(job, (this.#followed.get(job) ?? 0) + 1);
    if (this.#followed.get(job) === 1) this.#restartSoon();
    return () => {
      const left = (this.#followed.get(job) ?? 1) - 1;
      if (left) this.#followed.set(job, left);
      else this.#followed.delete(job);
    };
  }

  close(): void {
    this.#closed = true;
    document.removeEventListener("visibilitychange", this.#onWake);
    removeEventListener("online", this.#onWake);
    this.#stop();
  }

  /** Pages that mount together follow several jobs: one new connection serves them all. */
  #restartSoon(): void {
    clearTimeout(this.#refollow);
    this.#refollow = window.setTimeout(() => this.#restart(), 20);
  }

  #restart(): void {
    this.#stop();
    void this.#open();
  }

  #stop(): void {
    clearTimeout(this.#silence);
    clearTimeout(this.#retry);
    this.#abort?.abort();
    this.#abort = null;
  }

  #onWake = (): void => {
    if (document.visibilityState === "visible" && this.state !== "live") this.#restart();
  };

  async #open(): Promise<void> {
    if (this.#closed) return;
    const abort = new AbortController();
    this.#abort = abort;
    const query = { job: [...this.#followed.keys()], last: this.#lastId };
    const url = api(this.workspace, ["events"], query);
    const headers = { Accept: "text/event-stream" };
    try {
      this.#listenForSilence(abort);
      const response = await fetch(url, { headers, signal: abort.signal, credentials: "same-origin" });
      if (response.status === 404) return this.#poll(abort);
      if (response.status === 401) return this.#ended();
      if (!response.ok || !response.body) throw new Error(String(response.status));
      this.#tell("live");
      this.#failures = 0;
      await this.#read(response.body, abort);
    } catch {
      // Reported by the state.
    }
    if (this.#abort === abort) this.#again();
  }

  async #read(body: ReadableStream<Uint8Array>, abort: AbortController): Promise<void> {
    const parser = new EventParser((event) => this.#take(event));
    const reader = body.pipeThrough(new TextDecoderStream() as never).getReader() as ReadableStreamDefaultReader<string>;
    for (;;) {
      const { done, value } = await reader.read();
      if (done || this.#abort !== abort) return;
      this.#listenForSilence(abort);
      parser.feed(value);
    }
  }

  #take(event: ServerEvent): void {
    if (event.id) this.#lastId = event.id;
    let data: unknown = null;
    try {
      data = JSON.parse(event.data);
    } catch {
      return;
    }
    if (event.type === "hello") this.#greeted(data as { resumed?: boolean });
    else if (event.type === "reset") this.#emit("refresh", null);
    else if (event.type === "end") this.#ended();
    else this.#emit(event.type, data);
  }

  #greeted({ resumed }: { resumed?: boolean }): void {
    if (this.#wasLive && !resumed) this.#emit("refresh", null);
    this.#wasLive = true;
  }

  /** The session is over: whoever is told reads something, is refused, and shows the form. */
  #ended(): void {
    this.#closed = true;
    this.#stop();
    this.#tell("offline");
    this.#emit("refresh", null);
  }

  #emit(type: string, data: unknown): void {
    for (const listener of [...(this.#listeners.get(type) ?? [])]) listener(data as never);
  }

  #listenForSilence(abort: AbortController): void {
    clearTimeout(this.#silence);
    this.#silence = window.setTimeout(() => this.#abort === abort && this.#restart(), SILENCE_MS);
  }

  #again(): void {
    clearTimeout(this.#silence);
    this.#failures += 1;
    if (this.#failures > 1) this.#tell("offline");
    const delay = Math.min(MOST_DELAY_MS, 250 * 2 ** this.#failures);
    this.#retry = window.setTimeout(() => void this.#open(), delay * (0.75 + Math.random() / 2));
  }

  /** A server without the stream. */
  #poll(abort: AbortController): void {
    clearTimeout(this.#silence);
    this.#tell("polling");
    this.#retry = window.setTimeout(() => {
      if (this.#abort !== abort) return;
      if (document.visibilityState === "visible") this.#emit("refresh", null);
      this.#poll(abort);
    }, POLL_MS);
  }

  #tell(state: Connection): void {
    if (state === this.state) return;
    this.state = state;
    for (const listener of [...this.#states]) listener(state);
  }
}
