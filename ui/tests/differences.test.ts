import { expect, it } from "vitest";
import type { ComparedJob } from "../src/api/model";
import { differences } from "../src/pages/compare/differences";

const job = (name: string, lr: number, more: Partial<ComparedJob> = {}): ComparedJob =>
  ({ name, status: "Completed", params: {}, values: {}, tags: {}, spec: { inputs: { lr, seed: 7 } }, ...more }) as unknown as ComparedJob;

it("values are told apart by what a reader sees", () => {
  const rows = differences([0.1, 0.5].map((value) => job("a", value, { values: { "system/own": value, loss: value } })));
  expect(rows.filter((row) => row.differs).map((row) => [row.group, row.name, row.values])).toEqual([
    ["Metrics, last values", "loss", ["0.1", "0.5"]], ["Metrics, last values", "system/own", ["0.1", "0.5"]], ["Inputs", "lr", ["0.1", "0.5"]],
  ]);
  expect(rows.find((row) => row.name === "seed")?.differs).toBe(false);
});

it("what one job lacks is empty", () => {
  const rows = differences([job("a", 1), job("b", 1, { params: { optimizer: "sgd" }, values: { loss: 0 } })]);
  expect(rows.find((row) => row.name === "loss")?.values).toEqual(["", "0"]);
  expect(rows.find((row) => row.name === "optimizer")?.values).toEqual(["", "sgd"]);
});
