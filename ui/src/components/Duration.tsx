/** How long something takes or took, and how long ago something was. */
import { ago, duration, time } from "../lib/format";
import { useNow } from "../lib/now";

/** Counts on while there is a start and neither an end nor a measured duration. */
export function Duration({ start, end, seconds }: { start: string | null | undefined; end?: string | null | undefined; seconds?: number | null | undefined }) {
  const isRunning = !!start && !end && seconds == null;
  const now = useNow(isRunning ? 1000 : 0);
  if (!isRunning) return <span class="number">{duration(seconds ?? between(start, end))}</span>;
  return <span class="number">{duration(Math.max(0, Math.floor((now - Date.parse(start)) / 1000)))}</span>;
}

function between(start: string | null | undefined, end: string | null | undefined): number | null {
  return start && end ? (Date.parse(end) - Date.parse(start)) / 1000 : null;
}

export function Ago({ at }: { at: string | null | undefined }) {
  const now = useNow(30_000);
  if (!at) return null;
  return <time dateTime={at} title={time(at)}>{ago(at, now)}</time>;
}
