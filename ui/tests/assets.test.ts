import { expect, it } from "vitest";
import { type Asset, datastoreOf, fitting } from "../src/pages/assets/types";

const asset = (name: string, more: Partial<Asset> = {}): Asset =>
  ({ name, version: 1, type: "custom_model", description: "", tags: {}, properties: {}, job: "", owner: "ada", created_at: "", archived: false, ...more });

it("a search finds all its words in names, tags, stage and description", () => {
  const rows = [asset("digits", { tags: { team: "vision" }, properties: { stage: "Production" } }), asset("words", { description: "of a text" })];
  const names = (text: string): string[] => fitting(rows, text).map((row) => row.name);
  expect([names(""), names("vision prod"), names("TEXT"), names("vision text")]).toEqual([["digits", "words"], ["digits"], ["words"], []]);
});

it("the datastore of a path", () => {
  expect(datastoreOf("azureml://datastores/blobs/paths/a/b")).toBe("blobs");
  expect(datastoreOf("azureml://subscriptions/s/resourcegroups/g/workspaces/w/datastores/blobs/paths/a")).toBe("blobs");
  expect([datastoreOf("azureml:digits:1"), datastoreOf("https://host/datastores/x/y")]).toEqual([null, null]);
});
