import { expect, it } from "vitest";
import type { JobRow } from "../src/api/model";
import { columnsOf, listQuery, readState, splitColumn, usualColumns } from "../src/pages/jobs/listState";

const row = (values: Partial<JobRow>): JobRow => ({ name: "j", ...values }) as JobRow;

it("the list's state is read from its address", () => {
  const query = new URLSearchParams("text=cnn&sort=metrics.loss&descending=1&group=1&column=metrics.loss&column=other&limit=150");
  expect(readState(query)).toEqual({
    text: "cnn", status: "", experiment: "", owner: "", tag: "", archived: false, grouped: true,
    sort: { by: "metrics.loss", descending: true }, columns: ["metrics.loss"], limit: 150,
  });
});

it("a limit that is none is the usual one", () => {
  for (const text of ["x", "-5", "1e9999", "0.5"]) expect(readState(new URLSearchParams({ limit: text })).limit).toBe(50);
  expect(readState(new URLSearchParams("limit=100000")).limit).toBe(1000);
});

it("without chosen columns all are read, of at most 100 jobs", () => {
  const state = { ...readState(new URLSearchParams()), limit: 500 };
  expect(listQuery(state, null)).toMatchObject({ column: ["metrics", "params", "inputs"], limit: 100 });
  expect(listQuery(state, ["metrics.loss"])).toMatchObject({ column: ["metrics.loss"], limit: 500 });
});

it("usual columns are those that most jobs have, without figures of machines", () => {
  const rows = [
    row({ metrics: { loss: 1, acc: 2, "system/cpu_percent": 3 }, inputs: { lr: 0.1, data: { path: "x" } } }),
    row({ metrics: { loss: 1, rare: 2 }, inputs: { lr: 0.2 } }),
    row({ metrics: { loss: 1, acc: 3 } }),
  ];
  expect(usualColumns(rows)).toEqual(["metrics.loss", "metrics.acc", "inputs.lr"]);
  expect(columnsOf(rows)).toContain("metrics.system/cpu_percent");
  expect(columnsOf(rows)).not.toContain("inputs.data");
});

it("usual columns are not those of single ranks where there are others", () => {
  const metrics = { "loss/rank_0": 1, "loss/rank_1": 2, loss: 1, crank1: 3 };
  expect(usualColumns([row({ metrics })])).toEqual(["metrics.crank1", "metrics.loss"]);
  expect(usualColumns([row({ metrics: { "loss/rank_0": 1 } })])).toEqual(["metrics.loss/rank_0"]);
});

it("a metric's name may have dots", () => {
  expect(splitColumn("metrics.val.loss")).toEqual(["metrics", "val.loss"]);
});
