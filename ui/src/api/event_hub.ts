/** The streams of a browser, handed on to its tabs.
 *
 * Owns: which tab wants what, one stream per workspace, dropping tabs that are gone.
 * Leaves: a stream's life to stream.ts, what a tab does with events to events.ts.
 * Always: however many tabs there are, no more than `MOST_STREAMS` connections are open, because
 * browsers have six to one server; a tab that they don't serve is told to poll, and says so. A hub
 * serves one session.
 *
 * It runs in a shared worker (stream_worker.ts), or in the page where a browser has none.
 */
import { Stream } from "./stream";

/** What a tab sends, again and again while it is open; null when it leaves. */
export interface TabRequest {
  workspace: string;
  jobs: readonly string[];
  /** It was served before: if it is not known any more, it has missed something. */
  again: boolean;
  /** It was just looked at, or the network is back. */
  wake: boolean;
}

/** What a tab gets: an event of the server, `state`, `poll`, or `session` when that is over. */
export interface TabMessage {
  type: string;
  data: unknown;
}

export type Connection = "connecting" | "live" | "polling" | "offline";

export interface Port {
  onmessage: ((event: { data: TabRequest | null }) => void) | null;
  postMessage: (message: TabMessage) => void;
  close: () => void;
}

interface Tab {
  workspace: string;
  jobs: ReadonlySet<string>;
  heardAt: number;
}

/** Of the server, for one stream. */
const MOST_FOLLOWED = 100;
const MOST_STREAMS = 2;
const POLL_MS = 5_000;
/** Browsers wake the timers of hidden tabs once a minute, and those of frozen ones never. */
const GONE_MS = 200_000;

export class EventHub {
  #tabs = new Map<Port, Tab>();
  #streams = new Map<string, Stream>();

  constructor(private readonly session: string) {
    setInterval(() => this.#poll(), POLL_MS);
  }

  serve(port: Port): void {
    port.onmessage = ({ data }) => (data ? this.#hear(port, data) : this.#leave(port));
  }

  #hear(port: Port, request: TabRequest): void {
    const known = this.#tabs.get(port);
    if (known && known.workspace !== request.workspace) this.#leave(port);
    this.#tabs.set(port, { workspace: request.workspace, jobs: new Set(request.jobs), heardAt: Date.now() });
    this.#follow(request.workspace);
    if (request.wake) this.#streams.get(request.workspace)?.wake();
    if (!known && request.again) port.postMessage({ type: "refresh", data: null });
    this.#tellState(port);
  }

  #leave(port: Port): void {
    const tab = this.#tabs.get(port);
    if (!tab) return;
    this.#tabs.delete(port);
    if (this.#tabsOf(tab.workspace).length) return;
    this.#streams.get(tab.workspace)?.close();
    this.#streams.delete(tab.workspace);
  }

  #follow(workspace: string): void {
    let stream = this.#streams.get(workspace);
    if (!stream) {
      if (this.#streams.size >= MOST_STREAMS) return;
      stream = new Stream(workspace, this.session, {
        onEvent: (type, data) => this.#handOn(workspace, type, data),
        onState: () => this.#tabsOf(workspace).forEach(([port]) => this.#tellState(port)),
        onEnd: () => this.#end(workspace),
      });
      this.#streams.set(workspace, stream);
    }
    stream.follow(this.#followed(workspace));
  }

  #followed(workspace: string): string[] {
    const jobs = new Set(this.#tabsOf(workspace).flatMap(([, tab]) => [...tab.jobs]));
    return [...jobs].slice(0, MOST_FOLLOWED);
  }

  #tabsOf(workspace: string): [Port, Tab][] {
    return [...this.#tabs].filter(([, tab]) => tab.workspace === workspace);
  }

  /** Metrics and logs of a job concern the tabs that follow it. */
  #handOn(workspace: string, type: string, data: unknown): void {
    const job = type === "metrics" || type === "logs" ? (data as { job: string }).job : null;
    for (const [port, tab] of this.#tabsOf(workspace)) {
      if (job === null || tab.jobs.has(job)) port.postMessage({ type, data });
    }
  }

  #end(workspace: string): void {
    this.#streams.delete(workspace);
    for (const [port] of this.#tabsOf(workspace)) port.postMessage({ type: "session", data: null });
  }

  #stateOf(tab: Tab): Connection {
    const stream = this.#streams.get(tab.workspace);
    if (!stream) return "polling";
    const followed = new Set(this.#followed(tab.workspace));
    const isWhole = [...tab.jobs].every((job) => followed.has(job));
    return stream.state === "live" && !isWhole ? "polling" : stream.state;
  }

  #tellState(port: Port): void {
    const tab = this.#tabs.get(port);
    if (tab) port.postMessage({ type: "state", data: this.#stateOf(tab) });
  }

  #poll(): void {
    const now = Date.now();
    for (const [port, tab] of [...this.#tabs]) {
      if (now - tab.heardAt > GONE_MS) this.#leave(port);
      else if (this.#stateOf(tab) === "polling") port.postMessage({ type: "poll", data: null });
    }
  }
}
