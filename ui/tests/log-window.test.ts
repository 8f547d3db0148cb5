import { describe, expect, it } from "vitest";
import { contentPx, LINE_PX, MOST_PX, scrollTo, windowAt } from "../src/logs/window";

const VIEW = 600;

describe("the window of a log", () => {
  it("shows the first lines at the top, and the last ones at the end", () => {
    for (const lines of [1, 30, 31, 1000, 1_000_000, 50_000_000]) {
      expect(windowAt(lines, VIEW, 0, 0).first).toBe(0);
      const end = windowAt(lines, VIEW, Math.max(0, contentPx(lines) - VIEW), 0);
      expect(end.end).toBe(lines);
    }
  });

  it("is never more than a screen of elements, however long the log", () => {
    for (const scroll of [0, 1e6, 7e6, MOST_PX - VIEW]) {
      const { first, end } = windowAt(10_000_000, VIEW, scroll);
      expect(end - first).toBeLessThan(VIEW / LINE_PX + 45);
    }
  });

  it("is no higher than browsers can show", () => {
    expect(contentPx(1_000_000)).toBe(MOST_PX);
    expect(contentPx(100)).toBe(100 * LINE_PX);
  });

  it("puts its first line where the scroll bar stands", () => {
    const shown = windowAt(1_000_000, VIEW, 5_000_000, 0);
    // The line that the top of the screen cuts begins less than a line above it.
    expect(shown.top).toBeLessThanOrEqual(5_000_000);
    expect(shown.top).toBeGreaterThan(5_000_000 - LINE_PX);
  });

  it.each([100, 12_345, 1_000_000, 9_000_000])("scrolls to any line of %i and shows it", (lines) => {
    for (const share of [0, 0.1, 0.5, 0.99, 1]) {
      const line = Math.min(lines - 1, Math.floor(lines * share));
      const { first, end } = windowAt(lines, VIEW, scrollTo(line, lines, VIEW), 0);
      expect(first).toBeLessThanOrEqual(line);
      expect(end).toBeGreaterThan(line);
    }
  });

  it("moves down as the bar moves down", () => {
    let before = -1;
    for (let scroll = 0; scroll <= MOST_PX - VIEW; scroll += 1_000_003) {
      const { first } = windowAt(3_000_000, VIEW, scroll, 0);
      expect(first).toBeGreaterThan(before);
      before = first;
    }
  });
});
