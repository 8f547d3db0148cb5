/** One connection to a workspace's stream of events.
 *
 * Owns: opening it, going on after the last event that came, noticing that it is broken.
 * Leaves: who hears of the events to event_hub.ts.
 * Always: it is live only while bytes come; when the server can't say what was missed, `refresh` is
 * emitted. It runs in a shared worker too, so it knows no document.
 */
import { api } from "./client";
import { EventParser, type ServerEvent } from "./sse";

export interface Listener {
  onEvent: (type: string, data: unknown) => void;
  onState: (state: StreamState) => void;
  /** The session is over, or is another person's: the stream is closed. */
  onEnd: () => void;
}

export type StreamState = "connecting" | "live" | "offline";

/** Longer than the server's heartbeat: silence means the line is dead. */
const SILENCE_MS = 40_000;
/** A connection that waits longer, for a free one of the browser's six say, is not live. */
const CONNECT_MS = 5_000;
const MOST_DELAY_MS = 15_000;

type Timer = ReturnType<typeof setTimeout> | undefined;
type Hello = { resumed?: boolean; user: string; token?: string | null };

/** Names a session: another one is never given its events. */
export function sessionId(person: { user: string; token?: string | null }): string {
  return JSON.stringify([person.user, person.token ?? null]);
}

export class Stream {
  #followed: readonly string[] = [];
  #requested = new Set<string>();
  #lastId = "";
  #abort: AbortController | null = null;
  #silence: Timer;
  #late: Timer;
  #retry: Timer;
  #refollow: Timer;
  #failures = 0;
  #wasLive = false;
  #isClosed = false;
  state: StreamState = "connecting";

  constructor(
    private readonly workspace: string,
    private readonly session: string,
    private readonly listener: Listener,
  ) {
    // Tabs that open together follow several jobs: one connection serves them all.
    this.#restartSoon();
  }

  /** Have the metrics and logs of these jobs in it. */
  follow(jobs: readonly string[]): void {
    this.#followed = jobs;
    if (jobs.some((job) => !this.#requested.has(job))) this.#restartSoon();
  }

  /** Try at once: somebody looks, or the network is back. */
  wake(): void {
    if (this.state === "offline") this.#restart();
  }

  close(): void {
    this.#isClosed = true;
    this.#stop();
  }

  #restartSoon(): void {
    clearTimeout(this.#refollow);
    this.#refollow = setTimeout(() => this.#restart(), 20);
  }

  #restart(): void {
    this.#stop();
    void this.#open();
  }

  #stop(): void {
    clearTimeout(this.#refollow);
    clearTimeout(this.#silence);
    clearTimeout(this.#late);
    clearTimeout(this.#retry);
    this.#abort?.abort();
    this.#abort = null;
  }

  async #open(): Promise<void> {
    if (this.#isClosed) return;
    const abort = new AbortController();
    this.#abort = abort;
    this.#requested = new Set(this.#followed);
    const url = api(this.workspace, ["events"], { job: this.#followed, last: this.#lastId });
    const headers = { Accept: "text/event-stream" };
    this.#listenForSilence(abort);
    this.#late = setTimeout(() => this.state === "live" && this.#tell("connecting"), CONNECT_MS);
    try {
      const response = await fetch(url, { headers, signal: abort.signal, credentials: "same-origin" });
      if (this.#abort !== abort) return;
      if (response.status === 401) return this.#end();
      if (!response.ok || !response.body) throw new Error(String(response.status));
      await this.#read(response.body, abort);
    } catch {
      // Reported by the state.
    }
    if (this.#abort === abort) this.#again();
  }

  async #read(body: ReadableStream<Uint8Array>, abort: AbortController): Promise<void> {
    const parser = new EventParser((event) => this.#abort === abort && this.#take(event));
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
    if (event.type === "hello") this.#greeted(data as Hello);
    else if (event.type === "reset") this.listener.onEvent("refresh", null);
    else if (event.type === "end") this.#end();
    else this.listener.onEvent(event.type, data);
  }

  #greeted(hello: Hello): void {
    if (sessionId(hello) !== this.session) return this.#end();
    clearTimeout(this.#late);
    this.#failures = 0;
    this.#tell("live");
    if (this.#wasLive && !hello.resumed) this.listener.onEvent("refresh", null);
    this.#wasLive = true;
  }

  #end(): void {
    this.close();
    this.#tell("offline");
    this.listener.onEnd();
  }

  #listenForSilence(abort: AbortController): void {
    clearTimeout(this.#silence);
    this.#silence = setTimeout(() => this.#abort === abort && this.#restart(), SILENCE_MS);
  }

  #again(): void {
    this.#stop();
    this.#failures += 1;
    if (this.#failures > 1) this.#tell("offline");
    const delay = Math.min(MOST_DELAY_MS, 250 * 2 ** this.#failures);
    this.#retry = setTimeout(() => void this.#open(), delay * (0.75 + Math.random() / 2));
  }

  #tell(state: StreamState): void {
    if (state === this.state) return;
    this.state = state;
    this.listener.onState(state);
  }
}
