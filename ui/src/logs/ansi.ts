/** Colours of terminals in a line of a log, as classes; every other control sequence is left out.
 *
 * Source: ECMA-48, section 8.3.117 (SGR), https://ecma-international.org/publications-and-standards/standards/ecma-48/
 */
export interface Piece {
  text: string;
  /** Class names, or empty. */
  look: string;
}

// CSI …, OSC … (titles, links), and lone escapes; then what has no form of its own.
const ESCAPE = /\u001b(?:\[([0-9;:?]*)[ -/]*([@-~])|\][^\u0007\u001b]*(?:\u0007|\u001b\\)?|[ -/]*[0-~])/g;
const CONTROL = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f]/g;
const NAMES = ["black", "red", "green", "yellow", "blue", "magenta", "cyan", "white"];

interface Look {
  color: string;
  back: string;
  bold: boolean;
  faint: boolean;
  italic: boolean;
  underline: boolean;
}

const PLAIN: Look = { color: "", back: "", bold: false, faint: false, italic: false, underline: false };

export function pieces(line: string): Piece[] {
  const text = afterReturn(line);
  if (!text.includes("\u001b")) return [{ text: text.replace(CONTROL, ""), look: "" }];
  const found: Piece[] = [];
  let look = PLAIN;
  let at = 0;
  const put = (end: number): void => {
    const part = text.slice(at, end).replace(CONTROL, "");
    if (part) found.push({ text: part, look: classesOf(look) });
  };
  for (const match of text.matchAll(ESCAPE)) {
    put(match.index);
    at = match.index + match[0].length;
    if (match[2] === "m") look = applied(look, match[1] ?? "");
  }
  put(text.length);
  return found;
}

/** A progress bar writes over its line again and again: what stands there at last. */
function afterReturn(line: string): string {
  if (!line.includes("\r")) return line;
  return line.split("\r").findLast((part) => part.trim() !== "") ?? "";
}

function applied(look: Look, parameters: string): Look {
  const codes = parameters.split(/[;:]/).map((code) => Number(code || 0));
  let next = look;
  for (let at = 0; at < codes.length; at += 1) {
    const code = codes[at] as number;
    if (code === 38 || code === 48) {
      const color = codes[at + 1] === 5 ? ofPalette(codes[at + 2]) : "";
      next = code === 38 ? { ...next, color } : { ...next, back: color };
      at += codes[at + 1] === 5 ? 2 : 4;
    } else next = withCode(next, code);
  }
  return next;
}

function withCode(look: Look, code: number): Look {
  if (code === 0) return PLAIN;
  if (code === 1) return { ...look, bold: true };
  if (code === 2) return { ...look, faint: true };
  if (code === 3) return { ...look, italic: true };
  if (code === 4) return { ...look, underline: true };
  if (code === 22) return { ...look, bold: false, faint: false };
  if (code === 23) return { ...look, italic: false };
  if (code === 24) return { ...look, underline: false };
  if (code === 39) return { ...look, color: "" };
  if (code === 49) return { ...look, back: "" };
  if ((code >= 30 && code <= 37) || (code >= 90 && code <= 97)) return { ...look, color: NAMES[code % 10] ?? "" };
  if ((code >= 40 && code <= 47) || (code >= 100 && code <= 107)) return { ...look, back: NAMES[code % 10] ?? "" };
  return look;
}

/** The sixteen first of the 256 colours are the terminal's own. */
function ofPalette(code: number | undefined): string {
  return code !== undefined && code < 16 ? (NAMES[code % 8] ?? "") : "";
}

function classesOf(look: Look): string {
  const names = [
    look.color && `ansi-${look.color}`, look.back && `ansi-on-${look.back}`, look.bold && "ansi-bold",
    look.faint && "ansi-faint", look.italic && "ansi-italic", look.underline && "ansi-underline",
  ];
  return names.filter(Boolean).join(" ");
}

/** The line without any control sequence. */
export function plain(line: string): string {
  return pieces(line).map((piece) => piece.text).join("");
}

/** Pieces cut where `text` is found in the line, in any case; `hit` marks those. */
export function withHits(parts: readonly Piece[], text: string): (Piece & { hit: boolean })[] {
  if (!text) return parts.map((part) => ({ ...part, hit: false }));
  const whole = parts.map((part) => part.text).join("").toLowerCase();
  const wanted = text.toLowerCase();
  const ranges: [number, number][] = [];
  for (let at = whole.indexOf(wanted); at >= 0; at = whole.indexOf(wanted, at + wanted.length)) ranges.push([at, at + wanted.length]);
  const cut: (Piece & { hit: boolean })[] = [];
  let start = 0;
  for (const part of parts) {
    const end = start + part.text.length;
    let at = start;
    for (const [from, to] of ranges) {
      if (to <= at || from >= end) continue;
      if (from > at) cut.push({ text: part.text.slice(at - start, from - start), look: part.look, hit: false });
      const [first, last] = [Math.max(from, at), Math.min(to, end)];
      cut.push({ text: part.text.slice(first - start, last - start), look: part.look, hit: true });
      at = last;
    }
    if (at < end) cut.push({ text: part.text.slice(at - start), look: part.look, hit: false });
    start = end;
  }
  return cut;
}
