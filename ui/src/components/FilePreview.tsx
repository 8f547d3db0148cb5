/** A file, as far as it can be shown: text, a table, an image. It is never run.
 *
 * Always: the server says what a file is, by its content; HTML and SVG are text.
 */
import { api, get } from "../api/client";
import type { Preview } from "../api/model";
import { bytes } from "../lib/format";
import { useLoad } from "../lib/query";
import { Button } from "./Button";
import { ErrorNote, Loading } from "./Empty";

interface Props {
  workspace: string;
  /** Parts of the address that has `preview` and `image` below it, as `["jobs", NAME]`. */
  of: readonly string[];
  path: string;
  /** The named output that it lies in. */
  output?: string;
  download: string;
}

export function FilePreview({ workspace, of, path, output = "", download }: Props) {
  const url = api(workspace, [...of, "preview"], { path, output });
  const { data, error } = useLoad(url, (signal) => get<Preview>(url, signal));
  return (
    <section class="preview" aria-label={path}>
      <header class="preview-head">
        <h3 class="mono">{path}</h3>
        {data && <span class="dim">{bytes(data.size_bytes)}</span>}
        <Button icon="download" href={download} download={path.split("/").at(-1) ?? "file"}>Download</Button>
      </header>
      {error && <ErrorNote error={error} />}
      {!data && !error && <Loading />}
      {data && <PreviewContent data={data} image={api(workspace, [...of, "image"], { path, output })} name={path} />}
      {data?.truncated && <p class="dim preview-foot">Only the beginning is shown.</p>}
    </section>
  );
}

/** What the server, or the page itself, made out about a file. */
export function PreviewContent({ data, image, name }: { data: Preview; image: string; name: string }) {
  if (data.kind === "image") return <div class="preview-image"><img src={image} alt={name} /></div>;
  if (data.kind === "table" && data.columns) return <TableText columns={data.columns} rows={data.rows ?? []} />;
  if (data.text != null) return <Text text={name.endsWith(".json") ? pretty(data.text) : data.text} label={name} />;
  return <p class="preview-none dim">This file can't be shown here.</p>;
}

function pretty(text: string): string {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}

export function Text({ text, label }: { text: string; label: string }) {
  const lines = text.replace(/\n$/, "").split("\n");
  return (
    <div class="text" tabIndex={0} role="region" aria-label={`Content of ${label}`}>
      <pre class="text-numbers" aria-hidden="true">{lines.map((_, at) => at + 1).join("\n")}</pre>
      <pre class="text-lines">{text}</pre>
    </div>
  );
}

function TableText({ columns, rows }: { columns: readonly string[]; rows: readonly string[][] }) {
  const isNumber = (cell: string | undefined): boolean => /^-?[\d.]+(e[-+]?\d+)?$/i.test(cell ?? "");
  return (
    <div class="table-frame preview-table" tabIndex={0} role="region" aria-label="Table">
      <table class="table">
        <thead><tr>{columns.map((name, at) => <th key={at} scope="col" class={isNumber(rows[0]?.[at]) ? "cell-number" : ""}>{name}</th>)}</tr></thead>
        <tbody>{rows.map((row, at) => <tr key={at}>{row.map((cell, place) => <td key={place} class={isNumber(cell) ? "cell-number" : ""}>{cell}</td>)}</tr>)}</tbody>
      </table>
    </div>
  );
}
