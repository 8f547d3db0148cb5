/** Files of a job: what it logged and wrote, its named outputs, its inputs by their names. */
import { api, fileUrl, get } from "../../api/client";
import type { FileEntry, Job, Page } from "../../api/model";
import { Empty, ErrorNote, Loading } from "../../components/Empty";
import { FilePreview } from "../../components/FilePreview";
import { FileTree } from "../../components/FileTree";
import { Facts, Panel } from "../../components/Panel";
import { href, jobHref } from "../../lib/address";
import { useLoad, useThrottled } from "../../lib/query";
import { useAddress } from "../../lib/router";
import { useEvent, useWorkspace } from "../../lib/session";

export function FilesTab({ job }: { job: Job }) {
  const workspace = useWorkspace();
  const { query } = useAddress();
  const filesUrl = api(workspace, ["jobs", job.name, "files"]);
  const outputsUrl = api(workspace, ["jobs", job.name, "outputs"]);
  const files = useLoad(filesUrl, (signal) => get<Page<FileEntry>>(filesUrl, signal));
  const outputs = useLoad(outputsUrl, (signal) => get<Page<FileEntry>>(outputsUrl, signal));
  const again = useThrottled(() => { files.reload(); outputs.reload(); }, 1500);
  useEvent("job", (event) => { if (event.name === job.name) again(); });
  useEvent("refresh", again);
  const path = query.get("path") ?? "";
  const output = query.get("output") ?? "";
  if (files.error && !files.data) return <ErrorNote error={files.error} />;
  if (!files.data || !outputs.data) return <Loading />;
  const named = [...new Set(outputs.data.value.map((file) => file.output ?? ""))];
  const address = (chosen: string, of = ""): string => jobHref(workspace, job.name, { tab: "files", path: chosen, output: of });
  const download = output ? fileUrl(workspace, ["jobs", job.name, "outputs", output], path) : fileUrl(workspace, ["jobs", job.name, "files"], path);
  return (
    <div class="browser">
      <div class="browser-side">
        <Panel title="Files">
          {files.data.value.length ? <FileTree files={files.data.value} chosen={output ? "" : path} hrefOf={(chosen) => address(chosen)} /> : <p class="dim">Nothing yet. What the script writes to ./outputs is kept.</p>}
        </Panel>
        {named.map((name) => (
          <Panel key={name} title={`Output ${name}`}>
            <FileTree files={outputs.data?.value.filter((file) => file.output === name) ?? []} chosen={output === name ? path : ""} hrefOf={(chosen) => address(chosen, name)} />
          </Panel>
        ))}
        <Sources job={job} />
      </div>
      <div class="browser-main">
        {path ? <FilePreview key={`${output}/${path}`} workspace={workspace} of={["jobs", job.name]} path={path} output={output} download={download} /> : <Empty title="Choose a file">Texts, tables and images are shown here.</Empty>}
      </div>
    </div>
  );
}

/** Inputs and outputs that are data: where they come from and go to. */
function Sources({ job }: { job: Job }) {
  const workspace = useWorkspace();
  const rows = (["inputs", "outputs"] as const).flatMap((group) =>
    Object.entries(job.spec[group] ?? {}).flatMap(([name, value]) => {
      const path = (value as { path?: unknown } | null)?.path;
      return typeof path === "string" ? [[name, <DataLink workspace={workspace} path={path} />] as const] : [];
    }),
  );
  if (!rows.length) return null;
  return <Panel title="Data"><Facts rows={rows} /></Panel>;
}

function DataLink({ workspace, path }: { workspace: string; path: string }) {
  const named = /^azureml:([^:/@]+):([^/]+)$/.exec(path);
  return named ? <a href={href(workspace, "data", [named[1] ?? "", named[2] ?? ""])}>{path}</a> : <span class="mono">{path}</span>;
}
