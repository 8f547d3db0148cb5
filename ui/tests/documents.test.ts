import { expect, it } from "vitest";
import type { Job } from "../src/api/model";
import { cloned, literalInputs, readLiteral } from "../src/pages/job/documents";

const job = {
  name: "first", display_name: "digits", experiment_name: "e", node_count: 2,
  spec: { name: "first", display_name: "digits", command: "python t.py", code: "snapshot:1", inputs: { lr: 0.1, data: { path: "x" } }, properties: { a: "b" }, resources: { instance_count: 2 } },
} as unknown as Job;

it("a clone keeps everything but its name, and says what it was made of", () => {
  expect(cloned(job)).toEqual({
    display_name: "digits", command: "python t.py", code: "snapshot:1", inputs: { lr: 0.1, data: { path: "x" } }, experiment_name: "e",
    properties: { a: "b", "torchyard.cloned_from": "first" }, resources: { instance_count: 2 },
  });
});

it("a clone has the inputs and the size that were asked for", () => {
  const document = cloned(job, { inputs: { lr: 0.5 }, node_count: 4 });
  expect(document.inputs).toEqual({ lr: 0.5, data: { path: "x" } });
  expect(document.resources).toEqual({ instance_count: 4 });
});

it("numbers stay numbers, texts stay texts", () => {
  expect(readLiteral("1e-3", 0.1)).toBe(0.001);
  expect(readLiteral("fast", 0.1)).toBe("fast");
  expect(readLiteral("7", "6")).toBe("7");
  expect(readLiteral("true", false)).toBe(true);
});

it("data is no literal", () => {
  expect(literalInputs(job.spec)).toEqual([["lr", 0.1]]);
});
