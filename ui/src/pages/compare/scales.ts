/** Where values of jobs lie on an axis.
 *
 * Owns: what can be an axis, scales and their ticks. Leaves: drawing to the plots.
 * Always: a place is from 0 (the low end) to 1, or null for a job without a value; positive
 * numbers that span a factor of 50 or more are placed by their logarithm; an axis that holds any
 * text has its values beside each other, numbers before texts, each in their order.
 */
import type { JobRow } from "../../api/model";
import { number } from "../../lib/format";

export type Group = "metrics" | "params" | "inputs";
export type Cell = number | string | null;

type Values = Readonly<Record<string, unknown>> | null;

/** What plots need of a job; a row of a list has it with its columns. */
export type Compared = Pick<JobRow, "name" | "display_name"> & {
  metrics?: Values;
  params?: Values;
  inputs?: Values;
  /** Which value of a metric: the last, unless it says that it is the best. */
  which?: "best" | "last";
};

export interface Dimension {
  /** `metrics.loss` */
  id: string;
  group: Group;
  name: string;
  /** One of each job. */
  values: Cell[];
  differs: boolean;
}

export interface Tick {
  at: number;
  label: string;
}

export interface Scale {
  kind: "linear" | "log" | "text";
  place: (value: Cell) => number | null;
  ticks: Tick[];
  /** The least and the largest value, with four digits; none of texts. */
  ends: Tick[];
}

const LOG_FACTOR = 50;
const MOST_WORDS = 12;

/** Everything that a job has a number or a text for; what differs first, inputs before metrics. */
export function dimensionsOf(jobs: readonly Compared[]): Dimension[] {
  const found: Dimension[] = [];
  for (const group of ["inputs", "params", "metrics"] as const) {
    const names = new Set(jobs.flatMap((job) => Object.keys(job[group] ?? {})));
    for (const name of [...names].sort()) {
      const values = jobs.map((job) => cellOf(job[group]?.[name]));
      if (values.every((value) => value === null)) continue;
      const shown = group === "metrics" ? `${jobs[0]?.which ?? "last"} ${name}` : name;
      found.push({ id: `${group}.${name}`, group, name: shown, values, differs: new Set(values).size > 1 });
    }
  }
  return [...found.filter((each) => each.differs), ...found.filter((each) => !each.differs)];
}

/** Parameters come as texts from MLflow: a text that is a number is one. NaN is no place. */
export function cellOf(value: unknown): Cell {
  if (typeof value === "number") return Number.isFinite(value) ? value : null;
  if (typeof value === "boolean") return String(value);
  if (typeof value !== "string" || value === "") return null;
  if (["NaN", "Infinity", "-Infinity"].includes(value)) return null;
  return /^\s*[-+]?(\d+\.?\d*|\.\d+)(e[-+]?\d+)?\s*$/i.test(value) ? Number(value) : value;
}

/** The axes that are shown unless others are chosen: what was set, then what came out. */
export function usualAxes(dimensions: readonly Dimension[], most = 6): string[] {
  const differing = dimensions.filter((each) => each.differs);
  const results = differing.filter((each) => each.group === "metrics" && !/[/_.-](rank|node)[_-]?\d+$|^metrics\.system\//.test(each.id));
  const settings = differing.filter((each) => each.group !== "metrics");
  const kept = Math.max(1, Math.min(results.length, 3));
  return [...settings.slice(0, most - kept), ...results.slice(0, Math.max(kept, most - settings.length))].map((each) => each.id);
}

export function scaleOf(values: readonly Cell[], mostTicks = 6): Scale {
  const known = values.filter((value): value is number | string => value !== null);
  if (known.some((value) => typeof value === "string")) return words(known);
  const numbers = known as number[];
  if (!numbers.length) return { kind: "linear", place: () => null, ticks: [], ends: [] };
  // Not Math.min(...): a list of many jobs is more than a call takes.
  const low = numbers.reduce((a, b) => Math.min(a, b));
  const high = numbers.reduce((a, b) => Math.max(a, b));
  if (low > 0 && high / low >= LOG_FACTOR) return logarithmic(low, high, mostTicks);
  return linear(low, high, mostTicks);
}

function words(known: readonly (number | string)[]): Scale {
  const numbers = known.filter((value): value is number => typeof value === "number").sort((a, b) => a - b);
  const texts = known.filter((value): value is string => typeof value === "string").sort((a, b) => a.localeCompare(b));
  const order = [...new Set<number | string>([...numbers, ...texts])];
  const at = new Map(order.map((value, place) => [value, order.length === 1 ? 0.5 : place / (order.length - 1)]));
  const step = Math.ceil(order.length / MOST_WORDS);
  const ticks = order.filter((_, place) => place % step === 0).map((value) => ({ at: at.get(value) ?? 0, label: typeof value === "number" ? number(value) : value }));
  return { kind: "text", place: (value) => (value === null ? null : at.get(value) ?? null), ticks, ends: [] };
}

function linear(low: number, high: number, mostTicks: number): Scale {
  if (low === high) return { kind: "linear", place: (value) => (typeof value === "number" ? 0.5 : null), ticks: [{ at: 0.5, label: number(low) }], ends: [] };
  const step = niceStep(high / (mostTicks - 1) - low / (mostTicks - 1));
  // Halves before the difference: two huge numbers of both signs would overflow.
  const place = (value: number): number => (value / 2 - low / 2) / (high / 2 - low / 2);
  const ticks: Tick[] = [];
  const first = Math.ceil(low / step - 1e-9);
  // Counted, not added up: beyond 2^53 a number plus one may be itself.
  for (let count = 0; count <= 2 * mostTicks; count += 1) {
    const value = (first + count) * step;
    if (!(value <= high + step * 1e-9)) break;
    ticks.push({ at: Math.min(1, Math.max(0, place(value))), label: number(Number(value.toPrecision(12)) || 0) });
  }
  return { kind: "linear", place: (value) => (typeof value === "number" ? place(value) : null), ticks, ends: endsOf(low, high) };
}

function logarithmic(low: number, high: number, mostTicks: number): Scale {
  const [first, last] = [Math.log10(low), Math.log10(high)];
  const place = (value: number): number => (Math.log10(value) - first) / (last - first);
  const step = Math.max(1, Math.ceil((last - first) / mostTicks));
  const ticks: Tick[] = [];
  for (let power = Math.ceil(first - 1e-9); power <= last + 1e-9; power += step) {
    ticks.push({ at: Math.min(1, Math.max(0, place(10 ** power))), label: number(Number(`1e${power}`)) });
  }
  return { kind: "log", place: (value) => (typeof value === "number" && value > 0 ? place(value) : null), ticks, ends: endsOf(low, high) };
}

function endsOf(low: number, high: number): Tick[] {
  const short = (value: number): string => number(Number(value.toPrecision(4)));
  return [{ at: 0, label: short(low) }, { at: 1, label: short(high) }];
}

/** The ends, and those ticks that are further than `gap` from both. */
export function ticksWithEnds(scale: Scale, gap: number): Tick[] {
  const between = scale.ends.length ? scale.ticks.filter((tick) => tick.at > gap && tick.at < 1 - gap) : scale.ticks;
  return [...scale.ends, ...between].sort((a, b) => a.at - b.at);
}

/** 1, 2 or 5 times a power of ten, not below `step`. */
export function niceStep(step: number): number {
  const power = 10 ** Math.floor(Math.log10(step));
  return ([1, 2, 5, 10].find((each) => each * power >= step * (1 - 1e-9)) ?? 10) * power;
}

/** Segments between neighbouring axes; a job without a value on one has a gap there. */
export function lineThrough(places: readonly (number | null)[], toX: (axis: number) => number, toY: (place: number) => number): string {
  let path = "";
  let isDrawing = false;
  places.forEach((place, axis) => {
    if (place === null) {
      isDrawing = false;
      return;
    }
    path += `${isDrawing ? "L" : "M"}${toX(axis).toFixed(1)} ${toY(place).toFixed(1)}`;
    isDrawing = true;
  });
  return path;
}

/** A part of an axis, by its two places. */
export interface Brush {
  from: number;
  to: number;
}

/** `metrics.loss~0.25~0.75`, one for each axis, as the address has them. */
export function readBrushes(texts: readonly string[]): Map<string, Brush> {
  const found = new Map<string, Brush>();
  for (const text of texts) {
    const parts = /^(.+)~([\d.]+)~([\d.]+)$/.exec(text);
    const [from, to] = [Number(parts?.[2]), Number(parts?.[3])];
    if (parts?.[1] && from >= 0 && from < to && to <= 1) found.set(parts[1], { from, to });
  }
  return found;
}

export function writeBrushes(brushes: ReadonlyMap<string, Brush>): string[] {
  return [...brushes].map(([id, { from, to }]) => `${id}~${from.toFixed(3)}~${to.toFixed(3)}`);
}

/** A job stays when it has a value in each part that was chosen. */
export function isWithin(place: (id: string) => number | null, brushes: ReadonlyMap<string, Brush>): boolean {
  return [...brushes].every(([id, { from, to }]) => {
    const at = place(id);
    return at !== null && at >= from - 1e-6 && at <= to + 1e-6;
  });
}
