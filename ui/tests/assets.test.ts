import { expect, it } from "vitest";
import { type Asset, datastoreOf, fitting, inputsThatAre } from "../src/pages/assets/types";

const asset = (name: string, more: Partial<Asset> = {}): Asset =>
  ({ name, version: 1, type: "custom_model", description: "", tags: {}, properties: {}, job: "", owner: "ada", created_at: "", archived: false, ...more });

it("a search finds all its words in names, tags, stage and description", () => {
  const rows = [asset("digits", { tags: { team: "vision" }, properties: { stage: "Production" } }), asset("words", { description: "of a text" })];
  const names = (text: string): string[] => fitting(rows, text).map((row) => row.name);
  expect([names(""), names("vision prod"), names("TEXT"), names("vision text")]).toEqual([["digits", "words"], ["digits"], ["words"], []]);
});

it("a job uses a version by its address alone, or a path in it", () => {
  const inputs = { model: "azureml:digits:1", file: { path: "azureml:digits:1/a.pt" }, other: "azureml:digits:12", lr: 0.1 };
  expect(inputsThatAre({ name: "digits", version: 1 }, inputs)).toEqual(["model", "file"]);
});

it("a job keeps the path of a model's files", () => {
  const inputs = { model: "azureml://datastores/workspaceblobstore/paths/azureml-models/digits/1f/outputs/", other: "azureml://datastores/workspaceblobstore/paths/azureml-models/digits/1f/outputs-2/" };
  expect(inputsThatAre({ name: "digits", version: 1, folder: "azureml-models/digits/1f/outputs" }, inputs)).toEqual(["model"]);
  expect(inputsThatAre({ name: "remote", version: 1, folder: "" }, inputs)).toEqual([]);
});

it("the datastore of a path", () => {
  expect(datastoreOf("azureml://datastores/blobs/paths/a/b")).toBe("blobs");
  expect(datastoreOf("azureml://subscriptions/s/resourcegroups/g/workspaces/w/datastores/blobs/paths/a")).toBe("blobs");
  expect([datastoreOf("azureml:digits:1"), datastoreOf("https://host/datastores/x/y")]).toEqual([null, null]);
});
