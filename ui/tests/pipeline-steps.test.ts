import { expect, it } from "vitest";
import { ordered, sayProgress, sayStep, stateOf, type Step } from "../src/pages/pipeline/steps";
import { arrowsFrom, isDrawn } from "../src/graph/nodes";
import { begun, firstScale, fitted, moved, showing, zoomed } from "../src/graph/view";

const step = (name: string, more: Partial<Step> = {}): Step =>
  ({ number: 0, name, component: "", outcome: "", reason: "", takes: {}, job: "", reused_from: "", status: "", started_at: null, ended_at: null, duration_s: null, ...more });

it("a step has the state of its job, else that of its outcome", () => {
  expect(stateOf(step("a", { outcome: "live", status: "Running" }))).toEqual({ status: "Running", word: "Running" });
  expect(stateOf(step("a")).word).toBe("Waiting");
  expect(stateOf(step("a", { outcome: "skipped" })).word).toBe("Skipped");
  expect(stateOf(step("a", { outcome: "completed", job: "deleted" })).status).toBe("Completed");
});

it("progress and a step are said in words", () => {
  const steps = [
    step("a", { outcome: "completed", reused_from: "p" }), step("b", { outcome: "completed", takes: { data: { step: "a", output: "data" } } }), step("c"),
  ];
  expect(sayProgress(steps)).toBe("3 steps: 2 completed, 1 waiting; 1 reused");
  expect(sayStep(steps[0] as Step, steps)).toBe("a, completed, reused; used by b");
  expect(sayStep(steps[1] as Step, steps)).toBe("b, completed; uses a");
});

it("steps are ordered by a column, those without a value last either way", () => {
  const steps = [step("b", { number: 0, duration_s: 2 }), step("c", { number: 1 }), step("a", { number: 2, duration_s: 1 })];
  const names = (by: string, descending: boolean): string => ordered(steps, by, descending).map((each) => each.name).join("");
  expect(names("number", false)).toBe("bca");
  expect(names("name", true)).toBe("cba");
  expect(names("duration", false)).toBe("abc");
  expect(names("duration", true)).toBe("bac");
});

it("a graph is drawn of a few hundred steps", () => {
  expect(isDrawn(Array.from({ length: 300 }, () => ({ after: new Map() })))).toBe(true);
  expect(isDrawn(Array.from({ length: 301 }, () => ({ after: new Map() })))).toBe(false);
});

it("arrows between the same two are one, which says all of them", () => {
  const links = [{ from: "a", output: "data", input: "rows" }, { from: "b", output: "", input: "" }, { from: "a", output: "", input: "lr" }];
  expect([...arrowsFrom(links)]).toEqual([["a", "data → rows, lr"], ["b", ""]]);
});

const frame = { width: 1000, height: 500 };

it("a drawing that fits is in the middle, a larger one begins at its first step", () => {
  expect(fitted({ width: 400, height: 200 }, frame)).toEqual({ x: 300, y: 150, scale: 1 });
  expect(fitted({ width: 4000, height: 200 }, frame).scale).toBe(0.25);
  expect([1000, 1600, 4000].map((width) => firstScale({ width, height: 200 }, frame))).toEqual([1, 0.625, 0.8]);
  const box = { x: 16, y: 900, width: 188, height: 52 };
  const view = begun({ width: 4000, height: 2000 }, frame, box);
  expect(view.x).toBe(0);
  expect(view.y + box.y * view.scale).toBeGreaterThan(0);
  expect(view.y + (box.y + box.height) * view.scale).toBeLessThan(frame.height);
});

it("zooming keeps what is under the pointer where it is", () => {
  const at = { x: 300, y: 100 };
  const view = zoomed({ x: 20, y: 30, scale: 1 }, 1.5, at);
  expect((at.x - view.x) / view.scale).toBeCloseTo(280);
  expect((at.y - view.y) / view.scale).toBeCloseTo(70);
  expect(zoomed({ x: 0, y: 0, scale: 1.9 }, 4, at).scale).toBe(2);
});

it("some of a drawing stays in sight, and a box is shown with the least movement", () => {
  const drawing = { width: 2000, height: 400 };
  expect(moved({ x: 0, y: 0, scale: 1 }, -9000, 9000, drawing, frame)).toEqual({ x: -1940, y: 440, scale: 1 });
  const view = { x: 0, y: 0, scale: 1 };
  expect(showing(view, { x: 100, y: 100, width: 188, height: 52 }, frame)).toEqual(view);
  expect(showing(view, { x: 1100, y: 100, width: 188, height: 52 }, frame)).toEqual({ x: -296, y: 0, scale: 1 });
});
