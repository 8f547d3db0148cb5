/** The code that the job ran with, and how it differs from another job's. */
import { useState } from "preact/hooks";
import { api, fileUrl, get } from "../../api/client";
import type { CodeChange, CodeFile, FileDiff, Hunk, Job, Page, Preview } from "../../api/model";
import { Badge, type Tone } from "../../components/Badge";
import { Button } from "../../components/Button";
import { Empty, ErrorNote, Loading } from "../../components/Empty";
import { Text } from "../../components/FilePreview";
import { FileTree } from "../../components/FileTree";
import { Panel } from "../../components/Panel";
import { jobHref } from "../../lib/address";
import { bytes } from "../../lib/format";
import { useLoad } from "../../lib/query";
import { setQuery, useAddress } from "../../lib/router";
import { useWorkspace } from "../../lib/session";

export function CodeTab({ job }: { job: Job }) {
  const workspace = useWorkspace();
  const { query } = useAddress();
  const other = query.get("other") ?? "";
  return (
    <>
      <Against key={other} job={job} other={other} />
      {other ? <Diff workspace={workspace} job={job} other={other} path={query.get("path") ?? ""} /> : <Files workspace={workspace} job={job} path={query.get("path") ?? ""} />}
    </>
  );
}

function Against({ job, other }: { job: Job; other: string }) {
  const origin = job.properties["torchyard.cloned_from"] ?? "";
  const [name, setName] = useState(other || origin);
  return (
    <form class="toolbar" onSubmit={(event) => { event.preventDefault(); setQuery({ other: name.trim(), path: null }, false); }}>
      <input class="input code-other" aria-label="Name of another job" placeholder="Name of another job" value={name} onInput={(event) => setName(event.currentTarget.value)} />
      <Button submit disabled={!name.trim()}>Show the difference</Button>
      {other && <Button icon="close" onClick={() => setQuery({ other: null, path: null }, false)}>All files</Button>}
    </form>
  );
}

function Files({ workspace, job, path }: { workspace: string; job: Job; path: string }) {
  const url = api(workspace, ["jobs", job.name, "code"]);
  const { data, error } = useLoad(url, (signal) => get<Page<CodeFile>>(url, signal));
  if (error) return <ErrorNote error={error} />;
  if (!data) return <Loading />;
  const files = data.value;
  if (!files.length) return <Empty title="No code">The job's command runs without files of its own.</Empty>;
  const chosen = path || usual(job, files);
  const file = files.find((each) => each.path === chosen);
  return (
    <div class="browser">
      <div class="browser-side"><Panel title="Snapshot"><FileTree files={files} chosen={chosen} hrefOf={(each) => jobHref(workspace, job.name, { tab: "code", path: each })} /></Panel></div>
      <div class="browser-main">{file ? <Source key={chosen} workspace={workspace} job={job} file={file} /> : <Empty title="Choose a file" />}</div>
    </div>
  );
}

/** The script that the command names. */
function usual(job: Job, files: readonly CodeFile[]): string {
  const command = String(job.spec.command ?? "");
  return (files.find((file) => command.includes(file.path)) ?? files.find((file) => file.path.endsWith(".py")) ?? files[0])?.path ?? "";
}

function Source({ workspace, job, file }: { workspace: string; job: Job; file: CodeFile }) {
  const url = api(workspace, ["jobs", job.name, "code", "file"], { path: file.path });
  const { data, error } = useLoad(url, (signal) => get<Preview>(url, signal));
  return (
    <section class="preview" aria-label={file.path}>
      <header class="preview-head">
        <h3 class="mono">{file.path}</h3><span class="dim">{bytes(file.size_bytes)}</span>
        <Button icon="download" href={fileUrl(workspace, ["blobs"], file.sha256)} download={file.path.split("/").at(-1) ?? "file"}>Download</Button>
      </header>
      {error && <ErrorNote error={error} />}
      {data && (data.text == null ? <p class="preview-none dim">This file can't be shown here.</p> : <Text text={data.text} label={file.path} />)}
      {data?.truncated && <p class="dim preview-foot">Only the beginning is shown.</p>}
    </section>
  );
}

const TONES: Record<CodeChange["change"], Tone> = { added: "green", removed: "red", changed: "amber" };

function Diff({ workspace, job, other, path }: { workspace: string; job: Job; other: string; path: string }) {
  const url = api(workspace, ["jobs", job.name, "code", "diff"], { other });
  const { data, error } = useLoad(url, (signal) => get<Page<CodeChange>>(url, signal));
  if (error) return <ErrorNote error={error} />;
  if (!data) return <Loading />;
  if (!data.value.length) return <Empty title="The same code">Both jobs ran with equal files.</Empty>;
  const shown = path ? data.value.filter((change) => change.path === path) : data.value;
  return (
    <div class="stack">
      <p class="dim">From <a class="link" href={jobHref(workspace, other)}>{other}</a> to this job: {data.value.length} {data.value.length === 1 ? "file differs" : "files differ"}.</p>
      {shown.slice(0, 20).map((change) => <ChangedFile key={change.path} workspace={workspace} job={job} other={other} change={change} />)}
      {shown.length > 20 && (
        <Panel title="More">{shown.slice(20).map((change) => <p key={change.path}><a class="link" href={jobHref(workspace, job.name, { tab: "code", other, path: change.path })}>{change.path}</a></p>)}</Panel>
      )}
    </div>
  );
}

function ChangedFile({ workspace, job, other, change }: { workspace: string; job: Job; other: string; change: CodeChange }) {
  const url = api(workspace, ["jobs", job.name, "code", "diff", "file"], { other, path: change.path });
  const { data, error } = useLoad(url, (signal) => get<FileDiff>(url, signal));
  return (
    <Panel flush title={<span class="mono">{change.path}</span>} aside={<Badge tone={TONES[change.change]}>{change.change}</Badge>}>
      {error && <ErrorNote error={error} />}
      {data && !data.hunks.length && <p class="preview-none dim">Its content can't be shown here.</p>}
      <div class="diff" tabIndex={0} role="region" aria-label={`Changes of ${change.path}`}>
        {data?.hunks.map((hunk, at) => (
          <table key={at} class="diff-hunk"><tbody>{numbered(hunk).map(([before, after, sign, text], line) => (
            <tr key={line} class={sign === "+" ? "diff-new" : sign === "-" ? "diff-old" : ""}>
              <td class="diff-number">{before}</td><td class="diff-number">{after}</td><td class="diff-sign">{sign}</td><td class="diff-text">{text}</td>
            </tr>
          ))}</tbody></table>
        ))}
      </div>
      {data && !data.whole && data.hunks.length > 0 && <p class="dim preview-foot">Only the beginning is compared.</p>}
    </Panel>
  );
}

function numbered(hunk: Hunk): [number | "", number | "", string, string][] {
  let [before, after] = [hunk.old_start, hunk.new_start];
  return hunk.lines.map(([sign, text]) => {
    const row: [number | "", number | "", string, string] = [sign === "+" ? "" : before, sign === "-" ? "" : after, sign, text];
    if (sign !== "+") before += 1;
    if (sign !== "-") after += 1;
    return row;
  });
}
