/** A status in its colour, with a sign of its own for those who don't see colours. */
import { ENDED, type Status } from "../api/model";

export type Tone = "blue" | "green" | "red" | "amber" | "grey";

const TONES: Partial<Record<Status, Tone>> = {
  Running: "blue", Finalizing: "blue", Starting: "blue", Completed: "green", Failed: "red",
  NotResponding: "red", Canceled: "grey", CancelRequested: "grey",
};
const WORDS: Partial<Record<Status, string>> = {
  NotStarted: "Not started", CancelRequested: "Canceling", NotResponding: "Not responding",
};

export function toneOf(status: Status): Tone {
  return TONES[status] ?? "amber";
}

export function wordOf(status: Status): string {
  return WORDS[status] ?? status;
}

export function Badge({ tone, children, title }: { tone: Tone; children: preact.ComponentChildren; title?: string }) {
  return <span class={`badge badge-${tone}`} title={title}>{children}</span>;
}

/** The sign alone: a ring that turns, a tick, a cross, a bar, a clock's hand. */
export function StatusSign({ status }: { status: Status }) {
  const tone = toneOf(status);
  return (
    <svg class={`sign sign-${tone}${tone === "blue" ? " sign-turns" : ""}`} width="14" height="14" viewBox="0 0 14 14" aria-hidden="true">
      <Sign status={status} />
    </svg>
  );
}

function Sign({ status }: { status: Status }) {
  if (status === "Completed") return (<><circle cx="7" cy="7" r="6.5" class="fill" /><path d="M4.2 7.2l2 2 3.6-4.1" class="cut" /></>);
  if (status === "Failed") return (<><circle cx="7" cy="7" r="6.5" class="fill" /><path d="M4.8 4.8l4.4 4.4M9.2 4.8 4.8 9.2" class="cut" /></>);
  if (ENDED.has(status) || status === "CancelRequested") return (<><circle cx="7" cy="7" r="6.5" class="fill" /><path d="M4.4 7h5.2" class="cut" /></>);
  if (toneOf(status) === "blue") return (<><circle cx="7" cy="7" r="5.7" class="ring" /><path d="M7 1.3A5.7 5.7 0 0 1 12.7 7" class="arc" /></>);
  return (<><circle cx="7" cy="7" r="5.7" class="ring-full" /><path d="M7 4v3.2l2 1.2" class="arc" /></>);
}

export function StatusBadge({ status }: { status: Status }) {
  return (
    <span class={`status status-${toneOf(status)}`}>
      <StatusSign status={status} />
      {wordOf(status)}
    </span>
  );
}
