/** What the server says of a metric, as a chart draws it.
 *
 * Owns: one axis for many lines, smoothing, which metrics belong into one chart.
 * Leaves: reduction of many points to the server, drawing to Chart.tsx.
 * Always: no number is made up: where a line has no point, or NaN, there is a gap or nothing.
 */
import type { ChartData, Value } from "../api/model";
import { type Heights, heightsOf } from "./heights";

/** A line's points by x: `low` and `high` are one where the server gave points. */
export interface Points {
  xs: number[];
  low: (number | null)[];
  high: (number | null)[];
  /** Whether there are values that no chart draws: NaN and infinities. */
  hasLeftOut?: boolean;
}

/** uPlot's columns: the xs of all lines, then `low` and `high` of each. */
export type Aligned = [number[], ...(number | null | undefined)[][]];

export function finite(value: Value): number | null {
  return typeof value === "number" && Number.isFinite(value) ? value : null;
}

/** `shift` and `scale` bring x to the axis: seconds since a start, say. Points of one x become their
 * least and their largest.
 */
export function pointsOf(data: ChartData, shift = 0, scale = 1): Points {
  const points: Points = { xs: [], low: [], high: [] };
  const put = (x: number, low: number | null, high: number | null): void => {
    if (low === null || high === null) points.hasLeftOut = true;
    const place = (x - shift) * scale;
    const last = points.xs.length - 1;
    if (last >= 0 && points.xs[last] === place) {
      points.low[last] = least(points.low[last] ?? null, low);
      points.high[last] = most(points.high[last] ?? null, high);
      return;
    }
    points.xs.push(place);
    points.low.push(low);
    points.high.push(high);
  };
  for (const [x, value] of data.points ?? []) put(x, finite(value), finite(value));
  for (const [x, low, high] of data.columns ?? []) put(x, finite(low), finite(high));
  return points;
}

function least(a: number | null, b: number | null): number | null {
  return a === null ? b : b === null ? a : Math.min(a, b);
}

function most(a: number | null, b: number | null): number | null {
  return a === null ? b : b === null ? a : Math.max(a, b);
}

/** One axis for all lines, with values at their heights. A column that goes down to where a logarithmic
 * axis has no place is drawn at its largest value.
 */
export function placed(data: Aligned, heights: Heights): Aligned {
  const [xs, ...columns] = data;
  const place = (value: number | null | undefined): number | null | undefined => (value == null ? value : heights.of(value));
  const drawn = columns.map((column, at) => column.map((value, x) => {
    const height = place(value);
    return height === null && at % 2 === 0 ? place(columns[at + 1]?.[x]) : height;
  }));
  return [xs, ...drawn];
}

/** Which points of a column stand between gaps: a line through them would not be seen. */
export function lonePoints(column: readonly (number | null | undefined)[]): number[] {
  const own = [...column.keys()].filter((at) => column[at] !== undefined);
  const isEmpty = (place: number): boolean => column[own[place] ?? -1] == null;
  return own.filter((_, place) => !isEmpty(place) && isEmpty(place - 1) && isEmpty(place + 1));
}

/** One axis for all lines. `undefined` where a line has no x of its own: drawn over, no gap. */
export function align(lines: readonly Points[]): Aligned {
  const all = new Set<number>();
  for (const line of lines) for (const x of line.xs) all.add(x);
  const xs = Float64Array.from(all).sort();
  const columns: (number | null | undefined)[][] = [];
  for (const line of lines) {
    const low = new Array<number | null | undefined>(xs.length);
    const high = new Array<number | null | undefined>(xs.length);
    let at = 0;
    for (let place = 0; place < xs.length; place += 1) {
      if (line.xs[at] !== xs[place]) continue;
      low[place] = line.low[at];
      high[place] = line.high[at];
      at += 1;
    }
    columns.push(low, high);
  }
  return [Array.from(xs), ...columns];
}

/** An exponential mean without the bias of its start; `weight` from 0 (as it is) to below 1.
 *
 * Source: Kingma and Ba, "Adam", section 3, https://arxiv.org/abs/1412.6980; TensorBoard does so.
 */
export function smooth(points: Points, weight: number): Points {
  if (!weight) return points;
  let mean = 0;
  let share = 0;
  const values = points.low.map((low, place) => {
    const high = points.high[place];
    if (low === null || high == null) return null;
    mean = mean * weight + (low / 2 + high / 2) * (1 - weight);
    share = share * weight + (1 - weight);
    return mean / share;
  });
  return { xs: points.xs, low: values, high: values };
}

const RANK = /(^|[/_.-])(rank|node|gpu|process)[_-]?(\d+)(?=$|[/_.-])/i;

/** `loss/rank_3` → `loss` and `rank 3`: metrics that ranks logged under names of their own. */
export function rankOf(key: string): { base: string; rank: string } {
  const found = RANK.exec(key);
  if (!found) return { base: key, rank: "" };
  const base = (key.slice(0, found.index) + key.slice(found.index + found[0].length)).replace(/^[/_.-]/, "");
  return base ? { base, rank: `${(found[2] ?? "").toLowerCase()} ${found[3]}` } : { base: key, rank: "" };
}

export interface Group {
  title: string;
  keys: { key: string; label: string }[];
}

/** One chart per metric; those of several ranks share one. In the order of their titles. */
export function groupKeys(keys: readonly string[]): Group[] {
  const groups = new Map<string, Group["keys"]>();
  for (const key of keys) {
    const { base, rank } = rankOf(key);
    const members = groups.get(base) ?? [];
    members.push({ key, label: rank || key });
    groups.set(base, members);
  }
  const order = new Intl.Collator("en", { numeric: true });
  return [...groups]
    .map(([title, members]) => {
      const [only] = members;
      if (members.length === 1 && only) return { title: only.key, keys: [{ key: only.key, label: only.key }] };
      return { title, keys: members.sort((a, b) => order.compare(a.label, b.label)) };
    })
    .sort((a, b) => order.compare(a.title, b.title));
}

/** A small line of a list: an SVG path in a box, from few columns. */
export function sparkline(data: ChartData, width: number, height: number): string {
  const { xs, low, high } = pointsOf(data);
  const { of } = heightsOf([{ xs, low, high }], false);
  const values = low.map((value, place) => (value === null || high[place] == null ? null : of(value / 2 + (high[place] as number) / 2)));
  const known = values.filter((value): value is number => value !== null);
  if (!known.length) return "";
  const [bottom, top] = [Math.min(...known), Math.max(...known)];
  const [first, last] = [xs[0] as number, xs[xs.length - 1] as number];
  const lone = new Set(lonePoints(values));
  let path = "";
  let isDown = false;
  values.forEach((value, place) => {
    if (value === null) {
      isDown = false;
      return;
    }
    const x = 1 + (((xs[place] as number) - first) / (last - first || 1)) * (width - 2);
    const y = 1 + (1 - (top > bottom ? (value - bottom) / (top - bottom) : 0.5)) * (height - 2);
    // A line of no length has round ends: a dot.
    path += `${isDown ? "L" : "M"}${x.toFixed(1)} ${y.toFixed(1)}${lone.has(place) ? "h0" : ""}`;
    isDown = true;
  });
  return path;
}
