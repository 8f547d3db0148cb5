/** Numbers, times and sizes as people read them. */

/** A metric's value: six significant digits, as `yard` prints it. */
export function number(value: unknown): string {
  if (typeof value === "string") return value;
  if (typeof value !== "number") return "";
  if (Number.isInteger(value) && Math.abs(value) < 1e15) return String(value);
  const size = Math.abs(value);
  if (size !== 0 && (size < 1e-4 || size >= 1e9)) return value.toExponential(3);
  return String(Number(value.toPrecision(6)));
}

export function count(value: number): string {
  return value.toLocaleString("en-US");
}

/** `0.4 s`, `12 s`, `3 m 20 s`, `2 h 5 m`, `3 d 4 h`. */
export function duration(seconds: number | null | undefined): string {
  if (seconds == null || !Number.isFinite(seconds)) return "";
  if (seconds < 0) return "0 s";
  if (seconds < 10) return `${seconds.toFixed(1)} s`;
  const whole = Math.round(seconds);
  if (whole < 60) return `${whole} s`;
  if (whole < 3600) return pair(Math.floor(whole / 60), "m", whole % 60, "s");
  if (whole < 86400) return pair(Math.floor(whole / 3600), "h", Math.floor((whole % 3600) / 60), "m");
  return pair(Math.floor(whole / 86400), "d", Math.floor((whole % 86400) / 3600), "h");
}

function pair(first: number, unit: string, second: number, smaller: string): string {
  return second ? `${first} ${unit} ${second} ${smaller}` : `${first} ${unit}`;
}

const UNITS = ["B", "kB", "MB", "GB", "TB"];

export function bytes(size: number): string {
  let value = size;
  let unit = 0;
  while (value >= 1000 && unit < UNITS.length - 1) {
    value /= 1000;
    unit += 1;
  }
  const digits = unit === 0 || value >= 100 ? 0 : 1;
  return `${value.toFixed(digits)} ${UNITS[unit]}`;
}

/** `just now`, `5 min ago`, `3 h ago`, `yesterday`, then the date. */
export function ago(moment: string | null | undefined, now = Date.now()): string {
  if (!moment) return "";
  const then = Date.parse(moment);
  const seconds = (now - then) / 1000;
  if (seconds < 45) return "just now";
  if (seconds < 3600) return `${Math.max(1, Math.round(seconds / 60))} min ago`;
  if (seconds < 86400) return `${Math.round(seconds / 3600)} h ago`;
  if (seconds < 172800) return "yesterday";
  if (seconds < 30 * 86400) return `${Math.round(seconds / 86400)} days ago`;
  return new Date(then).toISOString().slice(0, 10);
}

/** The whole time, in the reader's zone, for titles. */
export function time(moment: string | null | undefined): string {
  if (!moment) return "";
  return new Date(moment).toLocaleString(undefined, { dateStyle: "medium", timeStyle: "medium" });
}

/** As much of a text as `width` px hold, at 11 px. */
export function cut(text: string, width: number): string {
  const most = Math.max(3, Math.floor(width / 6.4));
  return text.length > most ? `${text.slice(0, most - 1)}…` : text;
}

export function plural(many: number, word: string, words = `${word}s`): string {
  return `${count(many)} ${many === 1 ? word : words}`;
}
