import { expect, it } from "vitest";
import { type Box, type Direction, layoutOf, type LaidStep, type Layout, nextBox } from "../src/graph/layout";

const steps = (text: string): LaidStep[] =>
  text.split(",").map((one) => one.trim().split("<")).map(([name = "", after = ""]) => ({ name: name.trim(), after: after.trim() ? after.trim().split(/\s+/) : [] }));

const box = (layout: Layout, name: string): Box => {
  const found = layout.boxes.find((each) => each.name === name);
  if (!found) throw new Error(`no box ${name}`);
  return found;
};

const overlap = (a: Box, b: Box): boolean => a.x < b.x + b.width && b.x < a.x + a.width && a.y < b.y + b.height && b.y < a.y + a.height;
const holds = (outer: Box, inner: Box): boolean =>
  outer.x <= inner.x && outer.y <= inner.y && outer.x + outer.width >= inner.x + inner.width && outer.y + outer.height >= inner.y + inner.height;

/** A fixed pseudo-random graph: each step takes of up to three before it. */
const random = (many: number, seed: number, name: (at: number) => string = (at) => `s${at}`): LaidStep[] => {
  let state = seed;
  const next = (below: number): number => {
    state = (state * 48271) % 2147483647;
    return state % below;
  };
  return Array.from({ length: many }, (_, at) => ({
    name: name(at), after: at ? [...new Set(Array.from({ length: next(4) }, () => name(next(at))))] : [],
  }));
};

it("a step is one layer behind the last that it takes of", () => {
  const layout = layoutOf(steps("a, b < a, c < a b, d"), "right");
  expect(box(layout, "a").x).toBe(box(layout, "d").x);
  expect(box(layout, "b").x).toBeGreaterThan(box(layout, "a").x + box(layout, "a").width);
  expect(box(layout, "c").x).toBeGreaterThan(box(layout, "b").x + box(layout, "b").width);
});

it("a chain is a straight line, and a fork is even about its stem", () => {
  const chain = layoutOf(steps("a, b < a, c < b"), "right");
  expect(new Set(chain.boxes.map((each) => each.y)).size).toBe(1);
  const fork = layoutOf(steps("a, b < a, c < a"), "right");
  expect(box(fork, "b").y + box(fork, "c").y).toBeCloseTo(2 * box(fork, "a").y);
});

it("steps are ordered so that arrows need not cross", () => {
  const layout = layoutOf(steps("a, b, c < b, d < a"), "right");
  expect(box(layout, "a").y < box(layout, "b").y).toBe(box(layout, "d").y < box(layout, "c").y);
});

it.each([["right"], ["down"]] as [Direction][])("no boxes overlap, and all lie within the drawing: %s", (direction) => {
  for (const seed of [1, 2, 3]) {
    const layout = layoutOf(random(60, seed), direction);
    const all = { name: "", label: "", x: 0, y: 0, width: layout.width, height: layout.height };
    layout.boxes.forEach((each, at) => {
      expect(holds(all, each)).toBe(true);
      for (const other of layout.boxes.slice(at + 1)) expect(overlap(each, other)).toBe(false);
    });
  }
});

it("a frame holds the steps of its nested pipeline and no others, however deep", () => {
  const nested = random(40, 5, (at) => ["s", "train.s", "train.deep.s", "score.s"][at % 4] + String(at));
  const layout = layoutOf(nested, "right");
  expect(layout.frames.map((frame) => frame.name).sort()).toEqual(["score", "train", "train.deep"]);
  expect(box(layout, "train.deep.s2").label).toBe("s2");
  for (const frame of layout.frames) {
    for (const each of layout.boxes) {
      const isInside = each.name.startsWith(`${frame.name}.`);
      expect([each.name, isInside ? holds(frame, each) : !overlap(frame, each)]).toEqual([each.name, true]);
    }
  }
});

it("there is one arrow from a step to another, and it ends at the box", () => {
  const layout = layoutOf([{ name: "a", after: [] }, { name: "n.b", after: ["a", "a", "gone"] }], "right");
  expect(layout.arrows.map(({ from, to }) => [from, to])).toEqual([["a", "n.b"]]);
  const { x, y, height } = box(layout, "n.b");
  expect(layout.arrows[0]?.head.startsWith(`M${x} ${y + height / 2}L`)).toBe(true);
});

it("a long arrow goes round the steps between", () => {
  const layout = layoutOf(steps("a, b < a, c < a b"), "right");
  const long = layout.arrows.find((arrow) => arrow.from === "a" && arrow.to === "c")?.path ?? "";
  const between = box(layout, "b");
  const straight = /L([\d.]+) ([\d.]+)/.exec(long);
  expect(Number(straight?.[1])).toBe(between.x + between.width);
  const y = Number(straight?.[2]);
  expect(y < between.y || y > between.y + between.height).toBe(true);
});

it("nested pipelines that take of each other are drawn all the same", () => {
  const layout = layoutOf(steps("p.a, q.b < p.a, p.c < q.b"), "right");
  expect(layout.frames).toHaveLength(2);
  expect(layout.arrows.every((arrow) => !arrow.path.includes("NaN"))).toBe(true);
});

it("the same steps give the same picture", () => {
  expect(layoutOf(random(50, 7), "down")).toEqual(layoutOf(random(50, 7), "down"));
  expect(layoutOf([], "right").boxes).toEqual([]);
});

it.each([
  ["chain", Array.from({ length: 300 }, (_, at) => ({ name: `s${at}`, after: at ? [`s${at - 1}`] : [] }))],
  ["of all in the last", Array.from({ length: 300 }, (_, at) => ({ name: `s${at}`, after: at === 299 ? Array.from({ length: 299 }, (_, one) => `s${one}`) : at ? [`s${at - 1}`] : [] }))],
  ["of ten before", Array.from({ length: 300 }, (_, at) => ({ name: `s${at}`, after: Array.from({ length: Math.min(10, at) }, (_, one) => `s${(at * 7 + one * 13) % at}`) }))],
  ["wide", Array.from({ length: 300 }, (_, at) => ({ name: `s${at}`, after: at ? ["s0"] : [] }))],
] as [string, LaidStep[]][])("the largest graph that is drawn has finite places: %s", (_, graph) => {
  const layout = layoutOf(graph, "right");
  expect(layout.boxes).toHaveLength(300);
  for (const { x, y } of layout.boxes) expect(Number.isFinite(x) && Number.isFinite(y)).toBe(true);
});

it("arrow keys follow the arrows, then go to the nearest", () => {
  const layout = layoutOf(steps("a, b < a, c < a, d < c"), "right");
  const [upper, lower] = [box(layout, "b"), box(layout, "c")].sort((a, b) => a.y - b.y) as [Box, Box];
  expect(["b", "c"]).toContain(nextBox(layout, "a", "ArrowRight"));
  expect(nextBox(layout, upper.name, "ArrowDown")).toBe(lower.name);
  expect(nextBox(layout, lower.name, "ArrowUp")).toBe(upper.name);
  expect(nextBox(layout, "d", "ArrowLeft")).toBe("c");
  expect(nextBox(layout, "d", "ArrowRight")).toBeNull();
  expect(nextBox(layout, "a", "Enter")).toBeNull();
});
