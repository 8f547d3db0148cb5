import { describe, expect, it } from "vitest";
import { pieces, plain, withHits } from "../src/logs/ansi";

describe("a line of a log", () => {
  it("without colours is one piece", () => {
    expect(pieces("epoch 3")).toEqual([{ text: "epoch 3", look: "" }]);
  });

  it("has the colours of terminals", () => {
    expect(pieces("a \u001b[1;31mred\u001b[0m b")).toEqual([
      { text: "a ", look: "" }, { text: "red", look: "ansi-red ansi-bold" }, { text: " b", look: "" },
    ]);
    expect(pieces("\u001b[92mok\u001b[39m!")).toEqual([{ text: "ok", look: "ansi-green" }, { text: "!", look: "" }]);
    expect(pieces("\u001b[38;5;1mx\u001b[38;2;9;9;9my")).toEqual([{ text: "x", look: "ansi-red" }, { text: "y", look: "" }]);
  });

  it.each([
    ["\u001b]0;title\u0007text", "text"], ["\u001b]8;;javascript:alert(1)\u001b\\link\u001b]8;;\u001b\\", "link"],
    ["\u001b[2K\u001b[1Gtext", "text"], ["a\u0000b\u0008c", "abc"], ["\u001b", ""], ["\u001b[", ""], ["\u001b(Btext", "text"],
  ])("has no other control sequence: %j", (line, text) => expect(plain(line)).toBe(text));

  it("shows what stands there after a progress bar", () => {
    expect(plain("10%\r50%\r100% done\r")).toBe("100% done");
  });

  it("stays text, whatever it says", () => {
    expect(pieces("<script>alert(1)</script>")).toEqual([{ text: "<script>alert(1)</script>", look: "" }]);
  });

  it("of nothing but broken sequences is cut at once", () => {
    // Each begins what the rest of the line could go on: a rule that looked back would not end.
    expect(plain("\u001b[".repeat(100_000) + "\u001b]".repeat(100_000))).toBe("");
  });
});

describe("hits", () => {
  it("are marked across colours, in any case", () => {
    const found = withHits(pieces("a\u001b[31mLo\u001b[0mss b"), "loss");
    expect(found).toEqual([
      { text: "a", look: "", hit: false }, { text: "Lo", look: "ansi-red", hit: true },
      { text: "ss", look: "", hit: true }, { text: " b", look: "", hit: false },
    ]);
  });

  it("keep the whole line", () => {
    expect(withHits(pieces("aXbXc"), "x").map((piece) => piece.text).join("")).toBe("aXbXc");
  });
});
