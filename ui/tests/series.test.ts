import { describe, expect, it } from "vitest";
import type { ChartData } from "../src/api/model";
import { align, groupKeys, pointsOf, rankOf, smooth, sparkline } from "../src/charts/series";

const exact = (points: ChartData["points"]): ChartData => ({ key: "k", x: "step", exact: true, count: points?.length ?? 0, points });

describe("points", () => {
  it("are as the server gave them, NaN and infinities are gaps", () => {
    const points = pointsOf(exact([[0, 1], [1, "NaN"], [2, "Infinity"], [3, 4]]));
    expect(points).toEqual({ xs: [0, 1, 2, 3], low: [1, null, null, 4], high: [1, null, null, 4], hasLeftOut: true });
  });

  it("of one x become their least and largest", () => {
    expect(pointsOf(exact([[5, 3], [5, -1], [5, 2], [6, 0]]))).toEqual({ xs: [5, 6], low: [-1, 0], high: [3, 0] });
  });

  it("of columns keep both ends, so that a spike of one point in a million is drawn", () => {
    const data: ChartData = { key: "k", x: "step", exact: false, count: 1_000_000, columns: [[0, 0.9, 1], [500_000, 0.5, 77], [999_000, 0.1, 0.2]] };
    expect(Math.max(...(pointsOf(data).high as number[]))).toBe(77);
  });

  it("are moved to seconds since a start", () => {
    expect(pointsOf(exact([[1_700_000_001_500, 1]]), 1_700_000_000_000, 1 / 1000).xs).toEqual([1.5]);
  });
});

describe("alignment", () => {
  it("gives all lines one axis, without inventing points", () => {
    const a = pointsOf(exact([[0, 1], [2, 3]]));
    const b = pointsOf(exact([[1, 10], [2, 20]]));
    expect(align([a, b])).toEqual([[0, 1, 2], [1, undefined, 3], [1, undefined, 3], [undefined, 10, 20], [undefined, 10, 20]]);
  });

  it("keeps a gap a gap", () => {
    expect(align([pointsOf(exact([[0, 1], [1, "NaN"]]))])[1]).toEqual([1, null]);
  });
});

describe("smoothing", () => {
  it("has no bias at its start and keeps a constant constant", () => {
    const flat = pointsOf(exact([[0, 5], [1, 5], [2, 5]]));
    for (const value of smooth(flat, 0.9).low) expect(value).toBeCloseTo(5, 12);
  });

  it("weighs as the formula says", () => {
    const line = smooth(pointsOf(exact([[0, 0], [1, 1]])), 0.5);
    // (0.5 · 0 · 0.5 + 0.5 · 1) / (0.25 + 0.5)
    expect(line.low[1]).toBeCloseTo(2 / 3, 12);
  });

  it("passes over gaps", () => {
    expect(smooth(pointsOf(exact([[0, 2], [1, "NaN"], [2, 2]])), 0.9).low[1]).toBeNull();
  });
});

describe("metrics of ranks", () => {
  it.each([
    ["loss/rank_3", "loss", "rank 3"], ["rank_0/loss", "loss", "rank 0"], ["train.loss-rank12", "train.loss", "rank 12"],
    ["system/cpu_percent/node_1", "system/cpu_percent", "node 1"], ["ranking_5", "ranking_5", ""], ["rank_1", "rank_1", ""], ["loss", "loss", ""],
  ])("%s is of %s", (key, base, rank) => expect(rankOf(key)).toEqual({ base, rank }));

  it("share a chart, in the order of their numbers", () => {
    const groups = groupKeys(["loss/rank_10", "acc", "loss/rank_2", "loss"]);
    expect(groups.map((group) => group.title)).toEqual(["acc", "loss"]);
    expect(groups[1]?.keys.map((key) => key.label)).toEqual(["loss", "rank 2", "rank 10"]);
  });
});

it("a small line has a move at its start and after each gap", () => {
  const path = sparkline(exact([[0, 0], [1, 1], [2, "NaN"], [3, 1], [4, 0]]), 42, 12);
  expect(path).toBe("M1.0 11.0L11.0 1.0M31.0 1.0L41.0 11.0");
  expect(sparkline(exact([[0, 1]]), 42, 12)).toBe("M1.0 6.0h0");
  expect(sparkline(exact([[0, "NaN"]]), 42, 12)).toBe("");
});
