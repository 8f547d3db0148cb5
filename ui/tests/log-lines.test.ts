import { describe, expect, it } from "vitest";
import { BLOCK, type Index, linesOf, LogLines, type LogSource } from "../src/logs/lines";

/** A log on a server: what it holds, and what was asked of it. */
class Log implements LogSource {
  bytesRead = 0;
  indexed: [number, number][] = [];
  constructor(public content: string) {}

  index = async (from_line: number, from_byte: number): Promise<Index> => {
    this.indexed.push([from_line, from_byte]);
    const bytes = new TextEncoder().encode(this.content);
    const offsets = [from_byte];
    let line = from_line;
    for (let at = from_byte; at < bytes.length; at += 1) {
      if (bytes[at] !== 10) continue;
      line += 1;
      if ((line - from_line) % BLOCK === 0 && at + 1 < bytes.length) offsets.push(at + 1);
    }
    const lines = bytes.length && bytes[bytes.length - 1] !== 10 ? line + 1 : line;
    return { size_bytes: bytes.length, read_bytes: bytes.length, lines, from_line, offsets };
  };

  bytes = async (start: number, end: number): Promise<Uint8Array> => {
    this.bytesRead += end - start;
    return new TextEncoder().encode(this.content).slice(start, end);
  };
}

const numbered = (many: number): string => Array.from({ length: many }, (_, n) => `line ${n} ü\n`).join("");
const settled = (): Promise<void> => new Promise((resolve) => setTimeout(resolve, 0));

describe("the lines of a log", () => {
  it("are read in the blocks that are looked at, and no others", async () => {
    const log = new Log(numbered(20_000));
    const lines = new LogLines(log, () => {});
    await lines.grow();
    expect(lines.count).toBe(20_000);
    expect(log.bytesRead).toBe(0);
    lines.want(12_345, 12_380);
    await settled();
    expect(lines.line(12_345)).toBe("line 12345 ü");
    expect(lines.line(0)).toBeUndefined();
    expect(log.bytesRead).toBeLessThan(15 * BLOCK);
  });

  it("grow: only what is new is indexed, and a line that went on is read again", async () => {
    const log = new Log(`${numbered(700)}unfini`);
    const lines = new LogLines(log, () => {});
    await lines.grow();
    lines.want(690, lines.count);
    await settled();
    expect(lines.line(700)).toBe("unfini");
    log.content += `shed\n${numbered(3)}`;
    await lines.grow();
    lines.want(690, lines.count);
    await settled();
    expect(lines.count).toBe(704);
    expect(lines.line(700)).toBe("unfinished");
    expect(lines.line(703)).toBe("line 2 ü");
    expect(log.indexed.at(-1)?.[0]).toBe(BLOCK);
  });

  it("that are cut off are told to be", () => {
    const [long] = linesOf(new TextEncoder().encode("x".repeat(10_005)), 1);
    expect(long).toBe(`${"x".repeat(10_000)} … 5 more letters`);
  });

  it("are given up after many others", async () => {
    const lines = new LogLines(new Log(numbered(50_000)), () => {});
    await lines.grow();
    for (let block = 0; block < 100; block += 1) {
      lines.want(block * BLOCK, block * BLOCK + 10);
      await settled();
    }
    lines.want(49_900, 49_910);
    expect(lines.line(0)).toBeUndefined();
    expect(lines.line(49_900)).toBe("line 49900 ü");
  });

  it("say what went wrong", async () => {
    const lines = new LogLines({ ...new Log(""), index: () => Promise.reject(new Error("gone")) } as LogSource, () => {});
    await lines.grow();
    expect(lines.error).toEqual(new Error("gone"));
  });
});
