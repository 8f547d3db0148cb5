import { expect, it } from "vitest";
import { comparedOf, historyOf, ordered, sayProgress, type Sweep, type Trial } from "../src/pages/sweep/trials";

const trial = (number: number, values: Trial["values"], parameters: Trial["parameters"] = {}, outcome: Trial["outcome"] = "completed"): Trial =>
  ({ number, name: `s_${number}`, status: "Completed", outcome, parameters, values, metrics: {}, intervals: 0, reason: "", created_at: "", started_at: null, ended_at: null, duration_s: number });

const sweep = (trials: Trial[], goal: "minimize" | "maximize" = "minimize"): Sweep =>
  ({ name: "s", status: "Running", objectives: [{ primary_metric: "loss", goal }], sampling: "random", seed: 1, early_termination: "", parameters: ["lr"], max_total_trials: 9, max_concurrent_trials: 2, best: null, trials });

it("the best so far goes along with the goal, and passes over what has no value", () => {
  const trials = [trial(0, [3]), trial(1, []), trial(2, [4]), trial(3, ["NaN"]), trial(4, [1]), trial(5, [0], {}, "failed")];
  expect(historyOf(sweep(trials))?.best).toEqual({ xs: [0, 2, 4], low: [3, 3, 1], high: [3, 3, 1] });
  expect(historyOf(sweep(trials, "maximize"))?.best.low).toEqual([3, 4, 4]);
  expect(historyOf(sweep(trials))?.values.low).toEqual([3, 4, 1]);
  expect(historyOf(sweep([trial(0, [])]))).toBeNull();
});

it("plots get parameters and objectives; a nested choice is its JSON", () => {
  const [first] = comparedOf(sweep([trial(0, [3], { lr: 0.1, model: { kind: "tree", depth: 2 }, bias: true })]));
  expect(first).toEqual({ name: "s_0", display_name: "Trial 0", which: "best", params: { lr: 0.1, model: '{"kind":"tree","depth":2}', bias: "true" }, metrics: { loss: 3 } });
});

it("trials are ordered by a column, those without a value last either way", () => {
  const trials = [trial(0, [2], { lr: 0.3 }), trial(1, [], {}), trial(2, [1], { lr: 0.02 }), trial(3, [5], { lr: "auto" })];
  const numbers = (by: string, descending: boolean): number[] => ordered(trials, by, descending).map((each) => each.number);
  expect(numbers("value", false)).toEqual([2, 0, 3, 1]);
  expect(numbers("value", true)).toEqual([3, 0, 2, 1]);
  expect(numbers("number", true)).toEqual([3, 2, 1, 0]);
  expect(numbers("lr", false)).toEqual([2, 0, 3, 1]);
});

it("progress names what did not simply complete", () => {
  expect(sayProgress(sweep([trial(0, [1]), trial(1, [], {}, ""), trial(2, [1], {}, "stopped"), trial(3, [], {}, "failed")])))
    .toBe("4 of 9 trials: 1 going on, 1 stopped early, 1 failed");
  expect(sayProgress(sweep([trial(0, [1])]))).toBe("1 of 9 trials");
});
