/** What each rank printed, live. */
import { useCallback, useMemo, useState } from "preact/hooks";
import { api, fileUrl, get, range } from "../../api/client";
import { ENDED, type FileEntry, type Job, type LogHits, type LogIndex, type Page } from "../../api/model";
import { Empty, ErrorNote, Loading } from "../../components/Empty";
import { Select } from "../../components/Field";
import { useLoad, useThrottled } from "../../lib/query";
import { setQuery, useAddress } from "../../lib/router";
import { useEvent, useWorkspace } from "../../lib/session";
import { BLOCK, type LogSource } from "../../logs/lines";
import { type Hits, LogView } from "../../logs/LogView";

const MOST_HITS = 5000;
const MOST_BUTTONS = 8;

export function LogsTab({ job }: { job: Job }) {
  const workspace = useWorkspace();
  const { query } = useAddress();
  const url = api(workspace, ["jobs", job.name, "files"]);
  const { data, error, reload } = useLoad(url, (signal) => get<Page<FileEntry>>(url, signal));
  const again = useThrottled(reload, 2000);
  const [version, setVersion] = useState(0);
  const logs = logsOf(data?.value ?? []);
  const path = query.get("path") ?? usual(logs, job);
  const grown = useThrottled(() => setVersion((value) => value + 1), 300);
  useEvent("logs", (event) => {
    if (event.job !== job.name) return;
    if (event.logs.some((log) => log.path === path)) grown();
    if (event.logs.some((log) => !logs.some(([known]) => known === log.path))) again();
  });
  useEvent("job", (event) => { if (event.name === job.name) { again(); grown(); } });
  useEvent("refresh", () => { again(); grown(); });

  const source = useMemo(() => sourceOf(workspace, job.name, path), [workspace, job.name, path]);
  const search = useCallback((text: string, signal: AbortSignal) => findAll(workspace, job.name, path, text, signal), [workspace, job.name, path]);

  if (error && !data) return <ErrorNote error={error} />;
  if (!data) return <Loading />;
  if (!logs.length || !path) return <Empty title={ENDED.has(job.status) ? "No logs" : "Nothing printed yet"}>{job.waiting}</Empty>;
  return (
    <>
      <LogChoice logs={logs} path={path} />
      <LogView
        key={path} label={path} source={source} search={search} version={version} isLive={!ENDED.has(job.status)}
        download={fileUrl(workspace, ["jobs", job.name, "files"], path)}
        text={query.get("find") ?? ""} onText={(find) => setQuery({ find })}
      />
    </>
  );
}

function LogChoice({ logs, path }: { logs: readonly (readonly [string, string])[]; path: string }) {
  const choose = (chosen: string): void => setQuery({ path: chosen }, false);
  if (logs.length > MOST_BUTTONS) return <div class="log-choice"><Select label="Log" value={path} options={logs} onChange={choose} /></div>;
  return (
    <div class="log-choice choice" role="group" aria-label="Log">
      {logs.map(([key, label]) => <button type="button" key={key} aria-pressed={key === path} title={key} onClick={() => choose(key)}>{label}</button>)}
    </div>
  );
}

function sourceOf(workspace: string, job: string, path: string): LogSource {
  const file = fileUrl(workspace, ["jobs", job, "files"], path);
  return {
    index: (from_line, from_byte, signal) =>
      get<LogIndex>(api(workspace, ["jobs", job, "logs", "index"], { path, every: BLOCK, from_line: String(from_line), from_byte: String(from_byte) }), signal),
    bytes: async (start, end, signal) => (await range(file, start, end, signal)).bytes,
  };
}

async function findAll(workspace: string, job: string, path: string, text: string, signal: AbortSignal): Promise<Hits> {
  const lines: number[] = [];
  let [from_line, from_byte, more] = [0, 0, true];
  while (more && lines.length < MOST_HITS) {
    const query = { path, text, limit: MOST_HITS, from_line: String(from_line), from_byte: String(from_byte) };
    const page = await get<LogHits>(api(workspace, ["jobs", job, "logs", "search"], query), signal);
    lines.push(...page.lines);
    ({ from_line, from_byte, more } = page);
  }
  return { lines, more };
}

/** `user_logs/std_log_process_3.txt` is what rank 3 printed. Ranks first, by their numbers. */
export function logsOf(files: readonly FileEntry[]): (readonly [string, string])[] {
  const order = new Intl.Collator("en", { numeric: true });
  return files
    .filter((file) => /(^|\/)(user_logs|azureml-logs|logs|system_logs)\//.test(file.path))
    .map((file) => [file.path, nameOf(file.path)] as const)
    .sort((a, b) => weight(a[0]) - weight(b[0]) || order.compare(a[0], b[0]));
}

function nameOf(path: string): string {
  const attempt = /^attempt-(\d+)\//.exec(path);
  const before = attempt ? `attempt ${attempt[1]}, ` : "";
  const rank = /std_log_process_(\d+)\.txt$/.exec(path);
  if (rank) return `${before}rank ${Number(rank[1])}`;
  if (/user_logs\/std_log\.txt$/.test(path)) return `${before}output`;
  if (/image_build_log\.txt$/.test(path)) return `${before}build`;
  return path;
}

function weight(path: string): number {
  if (path.startsWith("user_logs/std_log")) return 0;
  return path.startsWith("attempt-") ? 2 : 1;
}

/** The failed rank's log, where the server names one; else the first. */
function usual(logs: readonly (readonly [string, string])[], job: Job): string {
  const rank = job.error?.details?.rank;
  const failed = typeof rank === "number" ? logs.find(([, label]) => label === `rank ${rank}`) : undefined;
  return (failed ?? logs[0])?.[0] ?? "";
}
