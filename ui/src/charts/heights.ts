/** How high values stand in a chart, and what its ticks say.
 *
 * Owns: which values have a place, ticks of a logarithmic axis. Leaves: drawing to Chart.tsx.
 * Always: every float that is finite can be drawn, the largest and the smallest, too: heights are
 * numbers of a usual size, and no difference of two of them overflows.
 */
import { number } from "../lib/format";
import type { Points } from "./series";

export interface Heights {
  /** null where a logarithmic axis has no place. */
  of: (value: number) => number | null;
  /** A tick at a height. */
  say: (height: number) => string;
  /** null where round heights are ticks. */
  ticks: ((low: number, high: number, most: number) => number[]) | null;
}

export function heightsOf(lines: readonly Points[], log: boolean, say = short): Heights {
  return log ? LOGARITHMIC : linear(lines, say);
}

function linear(lines: readonly Points[], say: (value: number) => string): Heights {
  let most = 0;
  for (const { low, high } of lines) for (const side of [low, high]) for (const value of side) most = Math.max(most, Math.abs(value ?? 0));
  const power = most >= 1e15 || (most > 0 && most < 1e-9) ? Math.floor(Math.log10(most)) : 0;
  if (!power) return { of: (value) => value, say, ticks: null };
  return { of: (value) => timesPower(value, -power), say: (height) => sayTimesPower(height, power), ticks: null };
}

const LOGARITHMIC: Heights = {
  of: (value) => (value > 0 ? Math.log10(value) : null),
  say: (height) => sayTimesPower(10 ** (height - Math.floor(height)), Math.floor(height)),
  ticks: (low, high, most) => {
    const step = Math.max(1, Math.ceil((high - low) / most));
    const powers = range(Math.ceil(low / step) * step, high, step);
    if (powers.length > 2) return powers;
    const between = range(Math.floor(low), high, 1).flatMap((power) => [1, 2, 5].map((factor) => power + Math.log10(factor)));
    return between.filter((height) => height >= low && height <= high);
  },
};

function range(first: number, last: number, step: number): number[] {
  const values = [];
  for (let value = first; value <= last; value += step) values.push(value);
  return values;
}

/** In two factors: 10 to the power may be no float. */
function timesPower(value: number, power: number): number {
  const half = Math.trunc(power / 2);
  return value * 10 ** half * 10 ** (power - half);
}

/** As text: the product may be no float. */
function sayTimesPower(value: number, power: number): string {
  if (!value) return "0";
  const [digits = "", exponent = ""] = Number(value.toPrecision(3)).toExponential().split("e");
  const whole = Number(exponent) + power;
  return Math.abs(whole) < 9 ? short(Number(`${digits}e${whole}`)) : `${digits}e${whole}`;
}

/** A tick: `12k`, `0.25`, `1e-5`. */
export function short(value: number): string {
  const size = Math.abs(value);
  if (size >= 1e9) return Number(value.toPrecision(3)).toExponential().replace("e+", "e");
  if (size >= 1e6) return `${number(value / 1e6)}M`;
  if (size >= 1e4) return `${number(value / 1e3)}k`;
  if (size && size < 1e-3) return value.toExponential(1).replace(".0e", "e");
  return String(Number(value.toPrecision(6)));
}

/** What of the lines is not drawn, as `yard job metrics --plot` says it. */
export function notesOn(lines: readonly Points[], log: boolean): string[] {
  const notes = [];
  if (lines.some((line) => line.hasLeftOut)) notes.push("some values are NaN or infinite and are not drawn");
  if (log && lines.some((line) => line.low.some((value) => value !== null && value <= 0))) {
    notes.push("some values are 0 or negative and are not drawn on a logarithmic axis");
  }
  return notes;
}
