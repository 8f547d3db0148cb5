import { expect, it } from "vitest";
import type { Job } from "../src/api/model";
import { differences } from "../src/pages/compare/differences";

const job = (name: string, lr: number, more: Partial<Job> = {}): Job =>
  ({ name, status: "Completed", metrics: { loss: lr, "system/own": lr }, params: {}, tags: {}, spec: { inputs: { lr, seed: 7 } }, ...more }) as unknown as Job;

it("values are told apart by what a reader sees", () => {
  const rows = differences([job("a", 0.1), job("b", 0.5)]);
  expect(rows.filter((row) => row.differs).map((row) => [row.group, row.name, row.values])).toEqual([
    ["Metrics, last values", "loss", ["0.1", "0.5"]], ["Metrics, last values", "system/own", ["0.1", "0.5"]], ["Inputs", "lr", ["0.1", "0.5"]],
  ]);
  expect(rows.find((row) => row.name === "seed")?.differs).toBe(false);
});

it("what one job lacks is empty", () => {
  const rows = differences([job("a", 1), job("b", 1, { params: { optimizer: "sgd" } })]);
  expect(rows.find((row) => row.name === "optimizer")?.values).toEqual(["", "sgd"]);
});
