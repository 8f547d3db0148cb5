import { expect, it } from "vitest";
import { HEAD_BYTES, imageType, previewOf, readTable } from "../src/pages/assets/preview";

const bytes = (text: string): Uint8Array => new TextEncoder().encode(text);

it("a quoted cell holds delimiters, lines and quotes", () => {
  expect(readTable('a,b\r\n1,"x, ""y""\nz"\n\n2,\n', ",", 10)).toEqual([["a", "b"], ["1", 'x, "y"\nz'], [""], ["2", ""]]);
  expect(readTable("a\tb\n1\t2", "\t", 10)).toEqual([["a", "b"], ["1", "2"]]);
  expect(readTable("a\nb\nc\n", ",", 2)).toEqual([["a"], ["b"]]);
});

it("a table has its first row as columns and no half row at its end", () => {
  const whole = bytes("id,n\n1,2\n3,4\n");
  expect(previewOf("a.csv", whole, whole.length)).toMatchObject({ kind: "table", columns: ["id", "n"], rows: [["1", "2"], ["3", "4"]], truncated: false });
  expect(previewOf("a.csv", whole.subarray(0, 10), whole.length)).toMatchObject({ rows: [["1", "2"]], truncated: true });
  const long = bytes("id\n" + "1\n".repeat(500));
  expect(previewOf("a.csv", long, long.length)).toMatchObject({ rows: { length: 200 }, truncated: true });
});

it("HTML and SVG are text, whatever their names say", () => {
  const svg = bytes("<svg xmlns='http://www.w3.org/2000/svg'><script>1</script></svg>");
  expect(previewOf("a.png", svg, svg.length)).toMatchObject({ kind: "text", truncated: false });
});

it("an image is told by its content, not by its name", () => {
  const png = new Uint8Array([0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a, 0, 0]);
  expect(previewOf("a.txt", png, png.length)).toMatchObject({ kind: "image", media_type: "image/png" });
  expect(previewOf("a.png", png, 17 << 20).kind).toBe("binary");
  expect(imageType(bytes("BM is no picture here"))).toBe("");
  expect(imageType(bytes("RIFF1234WEBP"))).toBe("image/webp");
});

it("a character that is cut in two is left out; other bytes are no text", () => {
  const text = bytes("a".repeat(HEAD_BYTES - 1) + "é");
  const cut = previewOf("a.txt", text.subarray(0, HEAD_BYTES), text.length);
  expect([cut.kind, cut.text?.length, cut.truncated]).toEqual(["text", HEAD_BYTES - 1, true]);
  expect(previewOf("a.txt", new Uint8Array([0x61, 0xff]), 2).kind).toBe("binary");
  expect(previewOf("a.txt", new Uint8Array([0x61, 0]), 2).kind).toBe("binary");
});
