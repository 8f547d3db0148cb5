import { expect, test } from "vitest";
import { resourceCharts } from "../src/pages/job/resources";

test("a figure of all ranks is one chart, in the order of their numbers", () => {
  const [chart, ...rest] = resourceCharts(["system/rank-10/process_cpu_percentage", "system/rank-2/process_cpu_percentage"]);
  expect(rest).toEqual([]);
  expect(chart?.keys.map(({ label }) => label)).toEqual(["rank 2", "rank 10"]);
  expect(chart?.say(99.96)).toBe("100 %");
});

test("GPUs of all nodes share a chart", () => {
  const [chart] = resourceCharts(["system/node-0/gpu_1_memory_usage_megabytes", "system/node-1/gpu_0_memory_usage_megabytes"]);
  expect(chart?.title).toBe("GPU memory");
  expect(chart?.keys.map(({ label }) => label)).toEqual(["node 0, GPU 1", "node 1, GPU 0"]);
  expect(chart?.say(2500)).toBe("2.5 GB");
});

test("what ranks use comes first, and an unknown key has its own chart", () => {
  const charts = resourceCharts(["system/own", "system/node-0/cpu_utilization_percentage", "system/rank-0/process_cpu_percentage"]);
  expect(charts.map(({ keys }) => keys[0]?.key)).toEqual(["system/rank-0/process_cpu_percentage", "system/node-0/cpu_utilization_percentage", "system/own"]);
});

test("a figure whose key the script logs, too, is in its chart", () => {
  const [chart] = resourceCharts(["system/node-0/cpu_utilization_percentage (sampled)", "system/node-1/cpu_utilization_percentage"]);
  expect(chart?.title).toBe("CPU of the machine");
  expect(chart?.keys.map(({ label }) => label)).toEqual(["node 0", "node 1"]);
});

test("more lines than can be told apart are several charts", () => {
  const keys = Array.from({ length: 70 }, (_, rank) => `system/rank-${rank}/process_cpu_percentage`);
  const charts = resourceCharts(keys);
  expect(charts.map(({ keys: part }) => part.length)).toEqual([32, 32, 6]);
  expect(charts[1]?.title).toContain("rank 32 to rank 63");
});
