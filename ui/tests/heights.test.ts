import { describe, expect, it } from "vitest";
import type { ChartData } from "../src/api/model";
import { heightsOf, notesOn } from "../src/charts/heights";
import { lonePoints, placed, pointsOf, smooth, sparkline } from "../src/charts/series";

const line = (...values: (number | string)[]) =>
  pointsOf({ key: "k", x: "step", exact: true, count: values.length, points: values.map((value, step) => [step, value]) } as ChartData);

describe("heights", () => {
  it("of usual values are the values", () => {
    const { of, say, ticks } = heightsOf([line(0.25, 12000, -3)], false);
    expect([of(0.25), say(12000), ticks]).toEqual([0.25, "12k", null]);
  });

  it.each([
    [[1e300, 3e300], ["1e300", "3e300"]],
    [[-1.7e308, 1.7e308], ["-1.7e308", "1.7e308"]],
    [[1, 1.7e308], ["1e0", "1.7e308"]],
    [[5e-324, 1e-323], ["4.94e-324", "9.88e-324"]],
  ] as const)("of %s are of a usual size, and said as the values", (values, said) => {
    const { of, say } = heightsOf([line(...values)], false);
    const heights = values.map((value) => of(value) as number);
    expect(heights.every((height) => Math.abs(height) < 20)).toBe(true);
    expect(Math.abs((heights[1] as number) - (heights[0] as number))).toBeGreaterThan(0.4);
    expect(say(heights[1] as number)).toBe(said[1]);
    if (values[0] !== 1) expect(say(heights[0] as number)).toBe(said[0]);
  });

  it("of a logarithmic axis have ticks over all floats", () => {
    const { of, say, ticks } = heightsOf([line(1e-320, 1.7e308)], true);
    const [low, high] = [of(1e-320) as number, of(1.7e308) as number];
    const found = ticks?.(low, high, 6) ?? [];
    expect(found.length).toBeGreaterThan(2);
    expect(found.length).toBeLessThanOrEqual(7);
    expect(found.map(say).every((text) => /^1(e-?\d+)?$/.test(text))).toBe(true);
    expect([of(0), of(-1)]).toEqual([null, null]);
    expect(ticks?.(0, 1, 6).map(say)).toEqual(["1", "2", "5", "10"]);
  });
});

describe("lone points", () => {
  it("stand between gaps, where no line would show them", () => {
    expect(lonePoints([1, null, 2, undefined, 3, null, undefined, 4, undefined])).toEqual([0, 7]);
    expect(lonePoints([undefined, 5, undefined])).toEqual([1]);
    expect(lonePoints([1, 2])).toEqual([]);
  });

  it("are dots in a small line", () => {
    const data = { key: "k", x: "step", exact: true, count: 3, points: [[0, 1], [1, "NaN"], [2, 3]] } as ChartData;
    expect(sparkline(data, 10, 10)).toBe("M1.0 9.0h0M9.0 1.0h0");
    expect(sparkline({ ...data, points: [[0, -1.7e308], [1, 1.7e308]] }, 10, 10)).toBe("M1.0 9.0L9.0 1.0");
  });
});

describe("what is not drawn", () => {
  it("is said", () => {
    expect(notesOn([line(1, 2)], true)).toEqual([]);
    expect(notesOn([line(1, "NaN")], false)).toEqual(["some values are NaN or infinite and are not drawn"]);
    expect(notesOn([line(1, 0, "-Infinity")], true)).toEqual([
      "some values are NaN or infinite and are not drawn", "some values are 0 or negative and are not drawn on a logarithmic axis",
    ]);
  });

  it("is what no line goes through", () => {
    const points = line(0, 2, 3);
    expect(placed([points.xs, [0, 2, 3], [1, 2, 3]], heightsOf([points], true))[1]).toEqual([0, Math.log10(2), Math.log10(3)]);
  });

  it("is no mean of large values", () => {
    expect(smooth(line(1.7e308, 1.7e308), 0.5).low.every((value) => Number.isFinite(value))).toBe(true);
  });
});
