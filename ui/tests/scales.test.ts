import { expect, it } from "vitest";
import { cellOf, type Compared, dimensionsOf, isWithin, lineThrough, niceStep, readBrushes, scaleOf, ticksWithEnds, usualAxes, writeBrushes } from "../src/pages/compare/scales";

const job = (name: string, inputs: Record<string, unknown>, metrics: Record<string, unknown>, params: Record<string, unknown> = {}): Compared =>
  ({ name, display_name: name, inputs, metrics, params });

it("a linear scale ends at the least and the largest value and has round ticks", () => {
  const scale = scaleOf([3, 0.5, null, 1]);
  expect([scale.kind, scale.place(0.5), scale.place(3), scale.place(1.75), scale.place(null)]).toEqual(["linear", 0, 1, 0.5, null]);
  expect(scale.ticks.map((tick) => tick.label)).toEqual(["0.5", "1", "1.5", "2", "2.5", "3"]);
  expect(scale.ticks.map((tick) => tick.at)).toEqual([0, 0.2, 0.4, 0.6, 0.8, 1]);
  expect(scaleOf([-0.3, 0.1]).ticks.map((tick) => tick.label)).toEqual(["-0.3", "-0.2", "-0.1", "0", "0.1"]);
});

it("numbers that span a factor of 50 are placed by their logarithm, unless one is not positive", () => {
  const scale = scaleOf([1e-4, 1e-2, 1]);
  expect(scale.kind).toBe("log");
  expect(scale.place(1e-2)).toBeCloseTo(0.5);
  expect(scale.place(0)).toBeNull();
  expect(scale.ticks.map((tick) => tick.label)).toEqual(["0.0001", "0.001", "0.01", "0.1", "1"]);
  expect([scaleOf([1, 49]).kind, scaleOf([1, 50]).kind, scaleOf([0, 1e6]).kind]).toEqual(["linear", "log", "linear"]);
});

it("an axis names its ends, and no tick beside them", () => {
  const labels = (values: number[]): string[] => ticksWithEnds(scaleOf(values), 0.07).map((tick) => tick.label);
  expect(labels([0.19, 1.01])).toEqual(["0.19", "0.4", "0.6", "0.8", "1.01"]);
  expect(labels([0.02, 3])).toEqual(["0.02", "0.1", "1", "3"]);
  expect(labels([0.123456, 0.543219])).toEqual(["0.1235", "0.2", "0.3", "0.4", "0.5", "0.5432"]);
  expect(labels([7, 7])).toEqual(["7"]);
});

it("one value is in the middle; no value is nowhere", () => {
  expect(scaleOf([7, 7]).place(7)).toBe(0.5);
  expect(scaleOf([7, 7]).ticks).toEqual([{ at: 0.5, label: "7" }]);
  expect(scaleOf([null]).place(1)).toBeNull();
});

it("numbers of any size keep their places", () => {
  const scale = scaleOf([-1.7e308, 1.7e308]);
  expect([scale.place(-1.7e308), scale.place(0), scale.place(1.7e308)]).toEqual([0, 0.5, 1]);
  expect(scale.ticks.length).toBeLessThanOrEqual(7);
  expect(scaleOf([1e300, 1e300 * (1 + 4e-16)]).ticks.length).toBeLessThanOrEqual(13);
});

it("texts stand beside each other, numbers before them", () => {
  const scale = scaleOf(["sgd", 10, "adam", 2, "sgd"]);
  expect(scale.kind).toBe("text");
  expect([2, 10, "adam", "sgd"].map((value) => scale.place(value))).toEqual([0, 1 / 3, 2 / 3, 1]);
  expect(scaleOf(Array.from({ length: 40 }, (_, at) => `t${at}`)).ticks.length).toBeLessThanOrEqual(12);
});

it("a parameter's text that is a number is one; what is not finite has no place", () => {
  expect(["0.1", "1e-3", "adam", "", "NaN", true, Infinity, {}, "1.2.3"].map(cellOf)).toEqual([0.1, 0.001, "adam", null, null, "true", null, null, "1.2.3"]);
});

it("what differs comes first, and neither system metrics nor ranks are usual axes", () => {
  const jobs = [
    job("a", { lr: 0.1, seed: 1 }, { loss: 1, "loss/rank_0": 1, "system/cpu": 3 }, { optimizer: "sgd" }),
    job("b", { lr: 0.5, seed: 1 }, { loss: 2, "loss/rank_0": 2 }, { optimizer: "adam" }),
  ];
  const dimensions = dimensionsOf(jobs);
  expect(dimensions.map((each) => each.id)).toEqual(["inputs.lr", "params.optimizer", "metrics.loss", "metrics.loss/rank_0", "metrics.system/cpu", "inputs.seed"]);
  expect(usualAxes(dimensions)).toEqual(["inputs.lr", "params.optimizer", "metrics.loss"]);
});

it("many settings leave room for what came out", () => {
  const inputs = (at: number): Record<string, number> => Object.fromEntries(Array.from({ length: 9 }, (_, place) => [`x${place}`, at]));
  const axes = usualAxes(dimensionsOf([job("a", inputs(1), { loss: 1, accuracy: 2 }), job("b", inputs(2), { loss: 2, accuracy: 3 })]));
  expect(axes).toEqual(["inputs.x0", "inputs.x1", "inputs.x2", "inputs.x3", "metrics.accuracy", "metrics.loss"]);
});

it("steps are 1, 2 or 5 times a power of ten", () => {
  expect([0.003, 0.7, 1, 1.1, 4, 51].map(niceStep).map((step) => Number(step.toPrecision(6)))).toEqual([0.005, 1, 1, 2, 5, 100]);
});

it("a line has a gap where a job has no value", () => {
  expect(lineThrough([0, 1, null, 0.5], (axis) => axis * 10, (place) => 100 * place)).toBe("M0.0 0.0L10.0 100.0M30.0 50.0");
});

it("chosen parts go through the address, and nonsense in it is left out", () => {
  const brushes = new Map([["metrics.loss~x", { from: 0.25, to: 0.75 }]]);
  expect(readBrushes(writeBrushes(brushes))).toEqual(brushes);
  expect(readBrushes(["a", "a~1~0", "a~0~2", "~0~1", "a~x~1"]).size).toBe(0);
  expect([0.25, 0.8, null].map((at) => isWithin(() => at, brushes))).toEqual([true, false, false]);
});
