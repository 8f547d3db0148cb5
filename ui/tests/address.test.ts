import { describe, expect, it } from "vitest";
import { href, jobHref, placeOf, search, withQuery } from "../src/lib/address";

describe("addresses", () => {
  it("encode every name, whatever letters it has", () => {
    expect(href("a/b", "jobs", ["x?y#z"])).toBe("/ui/workspaces/a%2Fb/jobs/x%3Fy%23z");
    expect(jobHref("w", "<script>", { tab: "logs" })).toBe("/ui/workspaces/w/jobs/%3Cscript%3E?tab=logs");
  });

  it("are read as they were written", () => {
    for (const names of [[], ["plain"], ["a/b", "1"], ["ä ö", "<img src=x>"]]) {
      expect(placeOf(href("my space", "models", names))).toEqual({ workspace: "my space", section: "models", names });
    }
  });

  it("without a section lead to the jobs", () => {
    expect(placeOf("/ui/workspaces/w")).toEqual({ workspace: "w", section: "jobs", names: [] });
  });

  it("of nothing are no place", () => {
    for (const path of ["/ui/", "/ui/workspaces/", "/ui/sign-in", "/elsewhere", "/ui/workspaces/%E0%A4%A/jobs"]) {
      expect(placeOf(path)).toBeNull();
    }
  });
});

describe("queries", () => {
  it("leave out what is the default", () => {
    expect(search({ a: "", b: false, c: null, d: undefined })).toBe("");
    expect(search({ a: true, b: 0, c: ["x", "y"] })).toBe("?a=1&b=0&c=x&c=y");
  });

  it("keep the rest when one value changes", () => {
    const query = new URLSearchParams("column=metrics.a&column=metrics.b&text=x");
    expect(withQuery(query, { text: "y" }).toString()).toBe("column=metrics.a&column=metrics.b&text=y");
    expect(withQuery(query, { column: ["metrics.c"] }).getAll("column")).toEqual(["metrics.c"]);
    expect(withQuery(query, { text: null }).has("text")).toBe(false);
  });

  it("do not change the query they come from", () => {
    const query = new URLSearchParams("a=1");
    withQuery(query, { a: "2" });
    expect(query.get("a")).toBe("1");
  });
});
