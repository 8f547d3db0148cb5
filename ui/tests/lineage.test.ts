import { expect, it } from "vitest";
import { graphOf, hrefOf, labelOf, type LineageNode, sayAfter, sayKinds, wordFor } from "../src/pages/lineage/lineage";

const node = (kind: string, name: string, more: Partial<LineageNode> = {}): LineageNode =>
  ({ id: [kind, name, more.version].filter(Boolean).join(":"), kind, name, version: "", display_name: "", status: "", ...more });

const RAW = node("data", "raw.rows", { version: "1" });
const TRAIN = node("job", "p_train", { display_name: "train", status: "Completed" });
const MODEL = node("model", "digits", { version: "3" });
const GONE = node("job", "gone");

it("each kind leads to its page, a path and a deleted job to none", () => {
  const nodes = [TRAIN, RAW, MODEL, node("online-deployment", "echo/blue"), node("batch-deployment", "numbers/triple"), node("path", "https://h/a"), GONE];
  expect(nodes.map((each) => hrefOf("w", each)?.replace("/ui/workspaces/w/", "") ?? null)).toEqual([
    "jobs/p_train", "data/raw.rows/1", "models/digits/3", "endpoints/echo", "endpoints/batch/numbers", null, null,
  ]);
  expect([GONE, TRAIN, MODEL].map(wordFor)).toEqual(["Deleted", "Completed", "Model"]);
});

it("a path is labelled by its end, an asset by its version, a job by what it is shown as", () => {
  const path = node("path", "azureml://datastores/blobs/paths/raw/");
  expect([path, RAW, TRAIN, GONE].map(labelOf)).toEqual(["raw", "raw.rows:1", "train", "gone"]);
  expect(sayKinds([RAW, TRAIN, GONE, MODEL])).toBe("1 data asset, 2 jobs, 1 model");
});

it("edges between the same two nodes are one arrow", () => {
  const edge = (source: LineageNode, target: LineageNode, output = "", input = "") => ({ source: source.id, target: target.id, output, input });
  const edges = [edge(RAW, TRAIN, "", "rows"), edge(RAW, TRAIN, "", "labels"), edge(TRAIN, MODEL, "data")];
  const { nodes, selected } = graphOf({ of: [MODEL.id], nodes: [RAW, TRAIN, MODEL], edges, is_whole: true });
  expect(selected).toEqual(["2"]);
  expect(nodes.map((each) => [...each.after])).toEqual([[], [["0", "rows, labels"]], [["1", "data"]]]);
  expect(nodes[1]?.say()).toBe("train, completed; comes from raw.rows:1; used by digits:3");
  expect([0, 1, 2].map((at) => sayAfter(nodes, at))).toEqual(["", "raw.rows:1 (rows, labels)", "train (data)"]);
});
