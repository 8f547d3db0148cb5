/** What can be shown of a file whose first bytes are known.
 *
 * Owns: telling text, tables and images by content; reading CSV. Leaves: fetching the bytes.
 * Always: only images that hold no script are images; HTML and SVG are text, as in the server's
 * previews of jobs' files (torchyard.assets.served_files).
 */
import type { Preview } from "../../api/model";

export const HEAD_BYTES = 256 << 10;
export const MOST_IMAGE_BYTES = 16 << 20;
const [MOST_ROWS, MOST_COLUMNS, MOST_CELL] = [200, 200, 1000];

export function previewOf(path: string, head: Uint8Array, size: number): Preview {
  const body: Preview = { path, size_bytes: size, kind: "binary", truncated: false };
  const type = imageType(head);
  if (type) return size <= MOST_IMAGE_BYTES ? { ...body, kind: "image", media_type: type } : body;
  const isCut = size > head.length;
  const text = textOf(head, isCut);
  if (text === null) return body;
  const delimiter = /\.csv$/i.test(path) ? "," : /\.tsv$/i.test(path) ? "\t" : "";
  if (delimiter) {
    const rows = readTable(isCut ? text.slice(0, text.lastIndexOf("\n") + 1) : text, delimiter, MOST_ROWS + 2);
    const cells = rows.map((row) => row.slice(0, MOST_COLUMNS).map((cell) => cell.slice(0, MOST_CELL)));
    if (cells.length) return { ...body, kind: "table", columns: cells[0] ?? [], rows: cells.slice(1, MOST_ROWS + 1), truncated: isCut || rows.length > MOST_ROWS + 1 };
  }
  return { ...body, kind: "text", text, truncated: isCut };
}

/** Null where the bytes are no text in UTF-8. */
function textOf(head: Uint8Array, isCut: boolean): string | null {
  if (head.includes(0)) return null;
  try {
    // A character that is cut in two at the end is left out: `stream` waits for its rest.
    return new TextDecoder("utf-8", { fatal: true }).decode(head, { stream: isCut });
  } catch {
    return null;
  }
}

/** The first `most` rows of CSV (RFC 4180), whose quoted cells may hold delimiters and lines. */
export function readTable(text: string, delimiter: string, most: number): string[][] {
  const rows: string[][] = [];
  let row: string[] = [];
  let cell = "";
  let isQuoted = false;
  const endRow = (): void => {
    rows.push([...row, cell]);
    row = [];
    cell = "";
  };
  for (let at = 0; at < text.length && rows.length < most; at += 1) {
    const letter = text[at];
    if (isQuoted) {
      if (letter !== '"') cell += letter;
      else if (text[at + 1] === '"') {
        cell += '"';
        at += 1;
      } else isQuoted = false;
    } else if (letter === '"' && !cell) isQuoted = true;
    else if (letter === delimiter) {
      row.push(cell);
      cell = "";
    } else if (letter === "\n") endRow();
    else if (letter !== "\r") cell += letter;
  }
  if (rows.length < most && (cell || row.length)) endRow();
  return rows;
}

/** Of an image whose kind holds no script, by its first bytes; else empty. */
export function imageType(head: Uint8Array): string {
  const text = String.fromCharCode(...head.subarray(0, 16));
  if (text.startsWith("\x89PNG\r\n\x1a\n")) return "image/png";
  if (text.startsWith("\xff\xd8\xff")) return "image/jpeg";
  if (/^GIF8[79]a/.test(text)) return "image/gif";
  if (text.startsWith("RIFF") && text.slice(8, 12) === "WEBP") return "image/webp";
  if (/^ftypavi[fs]$/.test(text.slice(4, 12))) return "image/avif";
  if (text.startsWith("BM") && text.slice(6, 10) === "\0\0\0\0") return "image/bmp";
  return "";
}
