import { expect, test } from "vitest";
import { isDark } from "../src/widget/theme";

test("a background is dark or light", () => {
  expect(isDark("rgb(17, 17, 17)")).toBe(true);
  expect(isDark("rgb(255, 255, 255)")).toBe(false);
  expect(isDark("rgba(0, 0, 0, 0.8)")).toBe(true);
});

test("a background that is see-through says nothing", () => {
  expect(isDark("rgba(0, 0, 0, 0)")).toBeNull();
  expect(isDark("transparent")).toBeNull();
});
