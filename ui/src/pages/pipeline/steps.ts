/** The steps of a pipeline, as its graph and its table show them.
 *
 * Owns: their shapes, what is said of a step that has no job. Leaves: positions to layout.ts.
 * Always: a job's own status is what is shown, for as long as there is one.
 */
import { ENDED, type Status } from "../../api/model";
import { wordOf } from "../../components/Badge";
import type { components } from "../../api/types";
import { count, plural } from "../../lib/format";

/** Its status is empty before there is a job, and once that was deleted. */
export type Step = Omit<components["schemas"]["PipelineStep"], "status" | "outcome"> & { status: Status | ""; outcome: string };
export type Steps = Omit<components["schemas"]["PipelineSteps"], "steps"> & { steps: Step[] };
export type Explanation = components["schemas"]["StepExplanation"];
export type Explanations = Omit<components["schemas"]["Explanations"], "value"> & { value: Explanation[] };

export interface StepState {
  /** Whose colour and sign it has. */
  status: Status;
  word: string;
}

const OUTCOMES: Record<string, StepState> = {
  "": { status: "NotStarted", word: "Waiting" },
  live: { status: "Starting", word: "Starting" },
  completed: { status: "Completed", word: "Completed" },
  failed: { status: "Failed", word: "Failed" },
  canceled: { status: "Canceled", word: "Canceled" },
  skipped: { status: "Canceled", word: "Skipped" },
};

export function stateOf(step: Pick<Step, "status" | "outcome">): StepState {
  const own = step.status ? { status: step.status, word: wordOf(step.status) } : undefined;
  return own ?? OUTCOMES[step.outcome] ?? { status: "NotStarted", word: step.outcome };
}

/** `5 steps: 3 completed, 1 running, 1 waiting; 2 reused` */
export function sayProgress(steps: readonly Step[]): string {
  const many = new Map<string, number>();
  for (const step of steps) {
    const word = stateOf(step).word.toLowerCase();
    many.set(word, (many.get(word) ?? 0) + 1);
  }
  const parts = [...many].sort((a, b) => b[1] - a[1]).map(([word, number]) => `${count(number)} ${word}`);
  const reused = steps.filter((step) => step.reused_from).length;
  return `${plural(steps.length, "step")}: ${parts.join(", ")}${reused ? `; ${count(reused)} reused` : ""}`;
}

/** What is said of a step to those who don't see the graph. */
export function sayStep(step: Step, steps: readonly Step[]): string {
  const before = [...new Set(Object.values(step.takes).map((taken) => taken.step ?? ""))];
  const after = takersOf(step.name, steps);
  return [
    `${step.name}, ${stateOf(step).word.toLowerCase()}${step.reused_from ? ", reused" : ""}`,
    before.length ? `uses ${before.join(", ")}` : "",
    after.length ? `used by ${after.join(", ")}` : "",
  ].filter(Boolean).join("; ");
}

/** The steps that take an output of this one. */
export function takersOf(name: string, steps: readonly Step[]): string[] {
  return steps.filter((step) => Object.values(step.takes).some((taken) => taken.step === name)).map((step) => step.name);
}

/** Its time goes on. */
export function isRunning(step: Step): boolean {
  return !!step.status && !ENDED.has(step.status) && !!step.started_at;
}

/** By a column: `number`, `name`, `status` or `duration`; what has none comes last either way. */
export function ordered(steps: readonly Step[], by: string, descending: boolean): Step[] {
  const sign = descending ? -1 : 1;
  const keyOf = (step: Step): string | number | null =>
    by === "name" ? step.name : by === "status" ? stateOf(step).word : by === "duration" ? step.duration_s : step.number;
  return [...steps].sort((a, b) => {
    const [left, right] = [keyOf(a), keyOf(b)];
    if (left === null || right === null) return Number(left === null) - Number(right === null);
    const difference = typeof left === "number" && typeof right === "number" ? left - right : String(left).localeCompare(String(right));
    return sign * difference || a.number - b.number;
  });
}
