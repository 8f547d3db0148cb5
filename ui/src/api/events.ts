/** What changed in a workspace, so that the parts of a page read it again.
 *
 * Owns: a tab's place at the hub that holds the browser's stream; asking for it again when it was
 * lost. Leaves: the stream to event_hub.ts, reading to the pages.
 * Always: a tab that may have missed something, or has no stream, hears `refresh`; its state says
 * what is so now. Where the browser has no shared worker, a tab holds a stream of its own while it
 * is shown.
 */
import type { Connection, Port, TabMessage, TabRequest } from "./event_hub";
import { EventHub } from "./event_hub";
import type { JobRow, Value } from "./model";

export type { Connection } from "./event_hub";

export interface Events {
  /** `job` is null when it was deleted; `last_event` grows with stages and notices. */
  job: { name: string; last_event: number; job: JobRow | null };
  metrics: { job: string; metrics: { key: string; count: number; step: number; timestamp: number; value: Value }[] };
  logs: { job: string; logs: { path: string; attempt: number; size_bytes: number }[] };
  compute: { compute: string };
  /** Anything may have changed. */
  refresh: null;
  /** The session has ended, or is another person's. */
  session: null;
}

type Listener<K extends keyof Events> = (data: Events[K]) => void;

/** A tab's end of the way to the hub. */
interface TabPort {
  onmessage: ((event: MessageEvent<TabMessage>) => void) | null;
  postMessage: (message: TabRequest | null) => void;
  close: () => void;
}

const PING_MS = 15_000;

export class EventStream {
  #listeners = new Map<string, Set<(data: never) => void>>();
  #states = new Set<(state: Connection) => void>();
  #followed = new Map<string, number>();
  #port: TabPort | null = null;
  #isShared = true;
  #isAnswered = true;
  #again = false;
  #ping: number;
  state: Connection = "connecting";

  constructor(
    private readonly workspace: string,
    private readonly session: string,
  ) {
    document.addEventListener("visibilitychange", this.#onShown);
    addEventListener("online", this.#onShown);
    addEventListener("pageshow", this.#onShown);
    addEventListener("pagehide", this.#leave);
    this.#ping = window.setInterval(() => this.#check(), PING_MS);
    this.#enter();
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
    this.#count(job, 1);
    return () => this.#count(job, -1);
  }

  close(): void {
    document.removeEventListener("visibilitychange", this.#onShown);
    removeEventListener("online", this.#onShown);
    removeEventListener("pageshow", this.#onShown);
    removeEventListener("pagehide", this.#leave);
    clearInterval(this.#ping);
    this.#leave();
  }

  #count(job: string, change: number): void {
    const count = (this.#followed.get(job) ?? 0) + change;
    if (count > 0) this.#followed.set(job, count);
    else this.#followed.delete(job);
    if (count === (change > 0 ? 1 : 0)) this.#send();
  }

  #enter(): void {
    this.#port = this.#isShared ? this.#sharedPort() : ownPort(this.session);
    this.#port.onmessage = ({ data }) => this.#take(data);
    this.#isAnswered = true;
    this.#send();
    this.#again = true;
  }

  #sharedPort(): TabPort {
    if (typeof SharedWorker === "undefined") {
      this.#isShared = false;
      return ownPort(this.session);
    }
    const worker = new SharedWorker(new URL("./stream_worker.ts", import.meta.url), { type: "module", name: this.session });
    worker.onerror = () => {
      if (this.#port !== worker.port) return;
      this.#isShared = false;
      this.#leave();
      this.#enter();
    };
    return worker.port;
  }

  #leave = (): void => {
    this.#port?.postMessage(null);
    this.#port?.close();
    this.#port = null;
  };

  #send(wake = false): void {
    this.#port?.postMessage({ workspace: this.workspace, jobs: [...this.#followed.keys()], again: this.#again, wake });
  }

  /** A worker that was ended by the browser does not answer. */
  #check(): void {
    if (!this.#port) return;
    if (!this.#isAnswered) {
      this.#tell("connecting");
      this.#leave();
      this.#enter();
      return;
    }
    this.#isAnswered = false;
    this.#send();
  }

  #onShown = (): void => {
    const isShown = document.visibilityState === "visible";
    if (isShown && !this.#port) this.#enter();
    else if (isShown) this.#send(true);
    else if (!this.#isShared) this.#leave();
  };

  #take({ type, data }: TabMessage): void {
    this.#isAnswered = true;
    if (type === "state") this.#tell(data as Connection);
    else if (type === "poll") {
      if (document.visibilityState === "visible") this.#emit("refresh", null);
    } else this.#emit(type, data);
    // Reading shows what is refused now.
    if (type === "session") this.#emit("refresh", null);
  }

  #emit(type: string, data: unknown): void {
    for (const listener of [...(this.#listeners.get(type) ?? [])]) listener(data as never);
  }

  #tell(state: Connection): void {
    if (state === this.state) return;
    this.state = state;
    for (const listener of [...this.#states]) listener(state);
  }
}

const hubs = new Map<string, EventHub>();

/** Of this tab alone. */
function ownPort(session: string): TabPort {
  const hub = hubs.get(session) ?? new EventHub(session);
  hubs.set(session, hub);
  const { port1, port2 } = new MessageChannel();
  hub.serve(port2 as unknown as Port);
  return port1;
}
