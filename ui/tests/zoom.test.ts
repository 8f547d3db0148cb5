import { describe, expect, it } from "vitest";
import { readZoom, zoomChange } from "../src/charts/zoom";
import { withQuery } from "../src/lib/address";

const of = (text: string): URLSearchParams => new URLSearchParams(text);
const after = (query: string, title: string, range: { from: number; to: number } | null, x = "step"): URLSearchParams =>
  withQuery(of(query), zoomChange(of(query), title, x, range));

describe("a chart's zoom in the address", () => {
  it("is read as it was written, whatever the title has in it", () => {
    for (const title of ["loss", "val:loss", "ü & ?#", "loss:step:1:2"]) {
      const query = of(after("tab=metrics", title, { from: 10.25, to: 200 }).toString());
      expect(readZoom(query, title, "step")).toEqual({ from: 10.25, to: 200 });
      expect(query.get("tab")).toBe("metrics");
    }
  });

  it("replaces the chart's own and leaves those of others", () => {
    let query = after("", "loss", { from: 1, to: 2 });
    query = after(query.toString(), "accuracy", { from: 3, to: 4 });
    query = after(query.toString(), "loss", { from: 5, to: 6 });
    expect(query.getAll("zoom")).toEqual(["accuracy:step:3:4", "loss:step:5:6"]);
    query = after(query.toString(), "loss", null);
    expect(readZoom(query, "loss", "step")).toBeNull();
    expect(readZoom(query, "accuracy", "step")).toEqual({ from: 3, to: 4 });
    expect(after(query.toString(), "accuracy", null).toString()).toBe("");
  });

  it("is of one axis", () => {
    const query = after("", "loss", { from: 1, to: 2 }, "time");
    expect(readZoom(query, "loss", "step")).toBeNull();
    expect(readZoom(query, "loss", "time")).toEqual({ from: 1, to: 2 });
    expect(after(query.toString(), "loss", { from: 3, to: 4 }).getAll("zoom")).toEqual(["loss:step:3:4"]);
  });

  it("is none when it is not a range", () => {
    for (const wrong of ["", "1", "1:", ":2", "2:1", "1:1", "a:b", "1:2:3", "NaN:2", "0:Infinity"]) {
      expect(readZoom(of(`zoom=loss:step:${wrong}`), "loss", "step"), wrong).toBeNull();
    }
  });

  it("of a small part keeps what tells its ends apart", () => {
    const query = after("", "loss", { from: 1234567.25, to: 1234567.5 });
    expect(readZoom(query, "loss", "step")).toEqual({ from: 1234567.25, to: 1234567.5 });
  });
});
