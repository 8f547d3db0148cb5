/** The trials of a sweep, as its plots and its table take them.
 *
 * Owns: their shapes, how the best value goes over the trials, their order. Leaves: drawing to the
 * components. Always: what a policy stopped counts with what it had reached, what failed does not.
 */
import type { Status } from "../../api/model";
import type { components } from "../../api/types";
import type { Points } from "../../charts/series";
import type { Compared } from "../compare/scales";

/** Its status is empty once its job was deleted. */
export type Trial = Omit<components["schemas"]["SweepTrial"], "status"> & { status: Status | "" };
export type Sweep = Omit<components["schemas"]["SweepTrials"], "trials"> & { trials: Trial[] };

export interface History {
  /** Each trial's own value, over its number. */
  values: Points;
  /** The best value so far. */
  best: Points;
}

/** How the first objective went; null before any trial has a value. */
export function historyOf(sweep: Pick<Sweep, "trials" | "objectives">): History | null {
  const isBetter = (a: number, b: number): boolean => (sweep.objectives[0]?.goal === "maximize" ? a > b : a < b);
  const [xs, own, best]: [number[], number[], number[]] = [[], [], []];
  for (const trial of sweep.trials) {
    const value = valueOf(trial);
    if (value === null || trial.outcome === "failed") continue;
    const before = best.at(-1);
    xs.push(trial.number);
    own.push(value);
    best.push(before === undefined || isBetter(value, before) ? value : before);
  }
  return xs.length ? { values: { xs, low: own, high: own }, best: { xs, low: best, high: best } } : null;
}

/** The value of the first objective, null where it is none that can be drawn. */
export function valueOf(trial: Pick<Trial, "values">): number | null {
  const value = trial.values[0];
  return typeof value === "number" ? value : null;
}

/** As jobs that plots compare: the parameters beside the objectives' values. */
export function comparedOf(sweep: Sweep): Compared[] {
  return sweep.trials.map((trial) => ({
    name: trial.name,
    display_name: `Trial ${trial.number}`,
    which: whichOf(sweep),
    params: Object.fromEntries(Object.entries(trial.parameters).map(([name, value]) => [name, sayParameter(value)])),
    metrics: Object.fromEntries(sweep.objectives.map(({ primary_metric }, at) => [primary_metric, trial.values[at] ?? null])),
  }));
}

/** Which of a trial's values of an objective is shown: of the only one the best, of several the last. */
export function whichOf(sweep: Pick<Sweep, "objectives">): "best" | "last" {
  return sweep.objectives.length === 1 ? "best" : "last";
}

/** A number stays one; a nested choice becomes its JSON. */
export function sayParameter(value: unknown): number | string {
  return typeof value === "number" || typeof value === "string" ? value : JSON.stringify(value) ?? "";
}

/** By a column: `number`, `value`, `duration` or a parameter; what has none comes last either way. */
export function ordered(trials: readonly Trial[], by: string, descending: boolean): Trial[] {
  const sign = descending ? -1 : 1;
  const keyOf = (trial: Trial): number | string | null => {
    if (by === "number") return trial.number;
    if (by === "value") return valueOf(trial);
    if (by === "duration") return trial.duration_s;
    return by in trial.parameters ? sayParameter(trial.parameters[by]) : null;
  };
  return [...trials].sort((a, b) => {
    const [left, right] = [keyOf(a), keyOf(b)];
    if (left === null || right === null) return Number(left === null) - Number(right === null);
    if (typeof left === "number" && typeof right === "number") return sign * (left - right);
    return sign * String(left).localeCompare(String(right));
  });
}

/** `12 of 40 trials: 3 running, 2 stopped early, 1 failed` */
export function sayProgress(sweep: Pick<Sweep, "trials" | "max_total_trials">): string {
  const many = (outcome: Trial["outcome"]): number => sweep.trials.filter((trial) => trial.outcome === outcome).length;
  const parts = ([["", "going on"], ["stopped", "stopped early"], ["failed", "failed"], ["canceled", "canceled"]] as const)
    .map(([outcome, word]) => [many(outcome), word] as const)
    .filter(([count]) => count > 0)
    .map(([count, word]) => `${count} ${word}`);
  const head = `${sweep.trials.length} of ${sweep.max_total_trials} trials`;
  return parts.length ? `${head}: ${parts.join(", ")}` : head;
}
