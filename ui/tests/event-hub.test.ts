import { afterEach, beforeEach, expect, it, vi } from "vitest";
import { EventHub, type TabMessage, type TabRequest } from "../src/api/event_hub";
import { sessionId } from "../src/api/stream";

const ANNA = { user: "anna", token: "page-1" };

/** A stream at the server that never ends by itself. */
class Served {
  isOpen = true;
  #controller: ReadableStreamDefaultController<Uint8Array> | null = null;
  readonly body = new ReadableStream<Uint8Array>({ start: (controller) => void (this.#controller = controller) });

  constructor(readonly url: string, signal: AbortSignal) {
    signal.addEventListener("abort", () => {
      this.isOpen = false;
      this.#controller?.error(signal.reason);
    });
  }

  send(type: string, data: unknown, id = "feed-1"): void {
    this.#controller?.enqueue(new TextEncoder().encode(`id: ${id}\nevent: ${type}\ndata: ${JSON.stringify(data)}\n\n`));
  }
}

let served: Served[] = [];
let answer: () => Response | null = () => null;
let hello: object = {};
let following: object | null = null;

const open = (): Served[] => served.filter((stream) => stream.isOpen);
const settle = (ms = 100): Promise<unknown> => vi.advanceTimersByTimeAsync(ms);

beforeEach(() => {
  vi.useFakeTimers();
  served = [];
  answer = () => null;
  hello = { resumed: false, ...ANNA };
  following = null;
  vi.stubGlobal("fetch", async (url: string, { signal }: { signal: AbortSignal }) => {
    const refused = answer();
    if (refused) return refused;
    const stream = new Served(url, signal);
    served.push(stream);
    stream.send("hello", hello);
    if (following) stream.send("job", following);
    return new Response(stream.body);
  });
});
afterEach(() => {
  vi.useRealTimers();
  vi.unstubAllGlobals();
});

class Tab {
  onmessage: ((event: { data: TabRequest | null }) => void) | null = null;
  messages: TabMessage[] = [];

  constructor(hub: EventHub, private readonly workspace = "default") {
    hub.serve(this);
  }

  postMessage(message: TabMessage): void {
    this.messages.push(message);
  }

  close(): void {}

  says(jobs: readonly string[] = [], more: Partial<TabRequest> = {}): this {
    this.onmessage?.({ data: { workspace: this.workspace, jobs, again: false, wake: false, ...more } });
    return this;
  }

  leaves(): void {
    this.onmessage?.({ data: null });
  }

  of(type: string): unknown[] {
    return this.messages.filter((message) => message.type === type).map((message) => message.data);
  }

  get state(): unknown {
    return this.of("state").at(-1);
  }
}

it("twelve tabs share one stream, and hear of their own jobs' metrics alone", async () => {
  const hub = new EventHub(sessionId(ANNA));
  const tabs = Array.from({ length: 12 }, (_, number) => new Tab(hub).says([`job-${number}`]));
  await settle();
  expect(served.length).toBe(1);
  expect(new URL(served[0]!.url, "http://x").searchParams.getAll("job")).toEqual(tabs.map((_, number) => `job-${number}`));
  expect(tabs.map((tab) => tab.state)).toEqual(tabs.map(() => "live"));
  served[0]!.send("job", { name: "job-3" });
  served[0]!.send("metrics", { job: "job-3", metrics: [] });
  await settle();
  expect(tabs.map((tab) => tab.of("job").length)).toEqual(tabs.map(() => 1));
  expect(tabs.map((tab) => tab.of("metrics").length)).toEqual(tabs.map((_, number) => (number === 3 ? 1 : 0)));
});

it("another job to follow opens the stream again, after the last event", async () => {
  const hub = new EventHub(sessionId(ANNA));
  const tab = new Tab(hub).says(["a"]);
  await settle();
  served[0]!.send("job", { name: "a" }, "feed-7");
  await settle();
  tab.says(["a", "b"]);
  await settle();
  expect(open().map((stream) => stream.url)).toEqual(["/v1/workspaces/default/events?job=a&job=b&last=feed-7"]);
  tab.says(["b"]);
  await settle();
  expect(served.length).toBe(2);
});

it("a stream ends with its last tab, also with one that is gone without a word", async () => {
  const hub = new EventHub(sessionId(ANNA));
  const [left, crashed] = [new Tab(hub).says(), new Tab(hub).says()];
  await settle();
  left.leaves();
  await settle(100_000);
  expect(open().length).toBe(1);
  await settle(120_000);
  expect(open().length).toBe(0);
  // It was frozen by the browser: what it missed, it reads.
  crashed.messages = [];
  crashed.says([], { again: true });
  await settle();
  expect([open().length, crashed.of("refresh").length]).toEqual([1, 1]);
});

it("tabs of a third workspace read by themselves, say so, and get a stream when there is one", async () => {
  const hub = new EventHub(sessionId(ANNA));
  const tabs = ["one", "two", "three"].map((workspace) => new Tab(hub, workspace).says());
  await settle(11_000);
  expect(open().length).toBe(2);
  expect(tabs.map((tab) => tab.state)).toEqual(["live", "live", "polling"]);
  expect(tabs.map((tab) => tab.of("poll").length)).toEqual([0, 0, 2]);
  tabs[0]!.leaves();
  tabs[2]!.says();
  await settle();
  expect([tabs[2]!.state, open().length]).toEqual(["live", 2]);
});

it("who follows more than a stream takes reads by itself", async () => {
  const hub = new EventHub(sessionId(ANNA));
  const first = new Tab(hub).says(Array.from({ length: 90 }, (_, number) => `a${number}`));
  const second = new Tab(hub).says(Array.from({ length: 20 }, (_, number) => `b${number}`));
  await settle(6_000);
  expect(new URL(served.at(-1)!.url, "http://x").searchParams.getAll("job").length).toBe(100);
  expect([first.state, second.state]).toEqual(["live", "polling"]);
  expect(second.of("poll").length).toBe(1);
});

it("nothing of another session is handed on", async () => {
  const hub = new EventHub(sessionId(ANNA));
  const tab = new Tab(hub).says();
  hello = { resumed: false, user: "bob", token: "page-2" };
  following = { name: "bobs" };
  await settle();
  expect([tab.of("job"), tab.of("session"), tab.state, open().length]).toEqual([[], [null], "offline", 0]);
});

it("a session that has ended is told", async () => {
  const hub = new EventHub(sessionId(ANNA));
  const tab = new Tab(hub).says();
  await settle();
  served[0]!.send("end", {});
  await settle();
  expect([tab.of("session"), tab.state, open().length]).toEqual([[null], "offline", 0]);
  answer = () => new Response("", { status: 401 });
  tab.says();
  await settle();
  expect(tab.of("session").length).toBe(2);
});

it("a stream that gets no answer is not live", async () => {
  const hub = new EventHub(sessionId(ANNA));
  const tab = new Tab(hub).says();
  await settle();
  vi.stubGlobal("fetch", () => new Promise(() => {}));
  tab.says(["a"]);
  await settle();
  expect(tab.state).toBe("live");
  await settle(6_000);
  expect(tab.state).toBe("connecting");
  vi.stubGlobal("fetch", () => Promise.reject(new TypeError("no network")));
  await settle(60_000);
  expect(tab.state).toBe("offline");
});
