import { expect, it } from "vitest";
import { hasRungs, highestFirst, type Rung, rungName, sayDecisions } from "../src/pages/sweep/rungs";

const rung = (number: number, interval: number, rank: number, decision: Rung["decision"], bracket = 0): Rung =>
  ({ trial: `s_${number}`, number, bracket, interval, value: 1 / rank, rank, reached: 3, decision });

const RUNGS = [
  rung(2, 3, 1, "promoted"), rung(0, 3, 2, "promoted"), rung(1, 3, 3, "stopped"),
  rung(0, 9, 2, "waiting"), rung(2, 9, 1, "promoted"), rung(7, 9, 1, "ended", 1),
];

it("the highest rung comes first, and at each the best trial, bracket by bracket", () => {
  expect(highestFirst(RUNGS).map((each) => [each.interval, each.bracket, each.number])).toEqual([
    [9, 0, 2], [9, 0, 0], [9, 1, 7], [3, 0, 2], [3, 0, 0], [3, 0, 1],
  ]);
  expect(RUNGS[0]?.interval).toBe(3);
});

it("decisions are counted; those that nobody met are left out", () => {
  expect(sayDecisions(RUNGS)).toBe("3 promoted, 1 waiting, 1 stopped, 1 ended");
  expect(sayDecisions([rung(0, 3, 1, "stopped")])).toBe("1 stopped");
});

it("a rung is named by its interval, with Hyperband by its bracket, too", () => {
  expect(rungName(rung(0, 9, 1, "ended"), false)).toBe("Interval 9");
  expect(rungName(rung(0, 9, 1, "ended", 1), true)).toBe("Interval 9, bracket 1");
});

it("only ASHA and Hyperband have rungs", () => {
  expect(["asha", "hyperband"].every(hasRungs)).toBe(true);
  expect(["", "bandit", "median_stopping", "truncation_selection"].some(hasRungs)).toBe(false);
});
