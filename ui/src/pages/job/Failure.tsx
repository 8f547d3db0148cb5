/** Why a job failed: the cause, the next step, and what the server found at the failed rank. */
import type { Job } from "../../api/model";
import { Icon } from "../../components/Icon";
import { jobHref } from "../../lib/address";
import { useWorkspace } from "../../lib/session";

/** Said elsewhere, or in the message. */
const UNSAID = new Set(["exit_code", "consequence", "exception", "at", "pid", "log", "frames"]);
const LONG = 120;

/** `brief`: the cause alone, above other parts of the job. */
export function Failure({ job, brief }: { job: Job; brief: boolean }) {
  const workspace = useWorkspace();
  const { error } = job;
  if (!error) return null;
  const details = error.details ?? {};
  const shown = Object.entries(details).filter(([key]) => !UNSAID.has(key)).map(([key, value]) => [key, say(value)] as const).filter(([, value]) => value);
  const isLong = (value: string): boolean => value.length > LONG || value.includes("\n");
  const log = typeof details.log === "string" ? details.log : "";
  return (
    <section class={`failure${job.status === "Canceled" ? " failure-canceled" : ""}`} role="alert" aria-label="Why it ended">
      <div class="failure-head">
        <Icon name="warn" />
        <div>
          <p class="failure-message">{error.message}</p>
          {error.hint && <p class="note-hint">{error.hint}</p>}
        </div>
      </div>
      {!brief && <div class="failure-body">
        <dl class="failure-facts">
          <div><dt>Code</dt><dd class="mono">{error.code}</dd></div>
          {shown.filter(([, value]) => !isLong(value)).map(([key, value]) => <div key={key}><dt>{title(key)}</dt><dd class="mono">{value}</dd></div>)}
          {job.exit_code !== null && <div><dt>Exit code</dt><dd class="mono">{job.exit_code}</dd></div>}
          {log && <div><dt>Log</dt><dd><a class="link mono" href={jobHref(workspace, job.name, { tab: "logs", path: log })}>{log}</a></dd></div>}
        </dl>
        {shown.filter(([, value]) => isLong(value)).map(([key, value]) => (
          <details key={key} class="failure-text" open={key === "traceback"}><summary>{title(key)}</summary><pre tabIndex={0}>{withoutFolder(value)}</pre></details>
        ))}
      </div>}
    </section>
  );
}

/** The script's own files are named as in the snapshot: their folder lasts as long as the attempt. */
export function withoutFolder(text: string): string {
  return text.replace(/"\/[^"\n]*\/scratch\/\w+\/node-\d+\/work\//g, '"');
}

function title(key: string): string {
  const words = key.replaceAll("_", " ");
  return words.slice(0, 1).toUpperCase() + words.slice(1);
}

function say(value: unknown): string {
  if (value === null || value === undefined) return "";
  if (Array.isArray(value) && value.every((each) => typeof each === "string")) return value.join("\n");
  return typeof value === "object" ? JSON.stringify(value, null, 1) : String(value);
}
