/** The lines of one log, read in blocks as they are looked at.
 *
 * Owns: where each block begins, which blocks are here, which are on the way.
 * Leaves: finding where lines begin to the server, what is on the screen to window.ts.
 * Always: of a log that grew, only what is new is asked for; a block that was not full is read
 * again then; blocks long not looked at are given up.
 */
export const BLOCK = 500;
const MOST_BLOCKS = 60;
/** More of one block is not read: it has lines of megabytes. */
const MOST_BYTES = 8_000_000;
export const MOST_LETTERS = 10_000;

/** Where lines begin, from `from_line` at byte `from_byte` on, one of every `BLOCK`. */
export interface Index {
  size_bytes: number;
  /** How far the server looked; less than all of a long log. */
  read_bytes: number;
  lines: number;
  from_line: number;
  offsets: number[];
}

export interface LogSource {
  index: (from_line: number, from_byte: number, signal: AbortSignal) => Promise<Index>;
  bytes: (start: number, end: number, signal: AbortSignal) => Promise<Uint8Array>;
}

export class LogLines {
  count = 0;
  size_bytes = 0;
  /** The log was looked at once: the count is its own. */
  isKnown = false;
  error: unknown = null;
  #offsets: number[] = [0];
  #blocks = new Map<number, string[]>();
  #pending = new Map<number, AbortController>();
  #growing: Promise<void> | null = null;
  #again = false;
  #closed = new AbortController();

  constructor(
    private readonly source: LogSource,
    private readonly onChange: () => void,
  ) {}

  /** The line, or undefined while it is on its way. */
  line(number: number): string | undefined {
    const block = Math.floor(number / BLOCK);
    return this.#blocks.get(block)?.[number - block * BLOCK];
  }

  /** Read what is missing of these lines, and give up requests for others. */
  want(first: number, end: number): void {
    const blocks = new Set<number>();
    for (let block = Math.floor(first / BLOCK); block * BLOCK < end; block += 1) blocks.add(block);
    for (const [block, abort] of this.#pending) {
      if (blocks.has(block)) continue;
      abort.abort();
      this.#pending.delete(block);
    }
    for (const block of blocks) {
      const lines = this.#blocks.get(block);
      if (!lines || lines.length < Math.min(BLOCK, this.count - block * BLOCK)) void this.#load(block);
      if (lines) {
        this.#blocks.delete(block);
        this.#blocks.set(block, lines);
      }
    }
    for (const block of this.#blocks.keys()) {
      if (this.#blocks.size <= MOST_BLOCKS) return;
      this.#blocks.delete(block);
    }
  }

  /** Ask how long the log is by now. Calls meanwhile are one more call. */
  grow(): Promise<void> {
    if (this.#growing) {
      this.#again = true;
      return this.#growing;
    }
    this.#growing = this.#grow().finally(() => {
      this.#growing = null;
      this.onChange();
      if (this.#again) {
        this.#again = false;
        void this.grow();
      }
    });
    return this.#growing;
  }

  close(): void {
    this.#closed.abort();
    for (const abort of this.#pending.values()) abort.abort();
    this.#pending.clear();
  }

  async #grow(): Promise<void> {
    try {
      for (;;) {
        const last = this.#offsets.length - 1;
        const index = await this.source.index(last * BLOCK, this.#offsets[last] as number, this.#closed.signal);
        this.#offsets.push(...index.offsets.slice(1));
        this.#takeSize(index);
        this.error = null;
        if (index.read_bytes >= index.size_bytes || index.offsets.length < 2) return;
        this.onChange();
      }
    } catch (error) {
      if (!this.#closed.signal.aborted) this.error = error;
    }
  }

  #takeSize(index: Index): void {
    if (index.size_bytes !== this.size_bytes && this.count > 0) {
      // Its last line may have gone on.
      const block = Math.floor((this.count - 1) / BLOCK);
      const lines = this.#blocks.get(block);
      if (lines) this.#blocks.set(block, lines.slice(0, this.count - 1 - block * BLOCK));
    }
    this.size_bytes = index.size_bytes;
    this.count = Math.max(index.lines, index.from_line);
    this.isKnown = true;
  }

  async #load(block: number): Promise<void> {
    const start = this.#offsets[block];
    if (start === undefined || this.#pending.has(block)) return;
    const abort = new AbortController();
    this.#pending.set(block, abort);
    const end = Math.min(this.#offsets[block + 1] ?? this.size_bytes, start + MOST_BYTES);
    const expected = Math.min(BLOCK, this.count - block * BLOCK);
    try {
      const bytes = await this.source.bytes(start, end, abort.signal);
      if (abort.signal.aborted) return;
      this.#blocks.set(block, linesOf(bytes, expected));
    } catch (error) {
      if (abort.signal.aborted) return;
      this.error = error;
    } finally {
      if (this.#pending.get(block) === abort) this.#pending.delete(block);
    }
    this.onChange();
  }
}

/** As many lines as are expected, long ones cut. */
export function linesOf(bytes: Uint8Array, expected: number): string[] {
  const lines = new TextDecoder().decode(bytes).split("\n");
  if (lines.length > expected) lines.length = expected;
  while (lines.length < expected) lines.push("");
  return lines.map((line) => (line.length > MOST_LETTERS ? `${line.slice(0, MOST_LETTERS)} … ${line.length - MOST_LETTERS} more letters` : line));
}
