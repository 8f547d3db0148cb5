/** From the job that made a version, over the version, to the jobs that use it. */
import type { ComponentChildren } from "preact";
import { api, get } from "../../api/client";
import type { Job, JobRow, Page } from "../../api/model";
import { StatusBadge } from "../../components/Badge";
import { Ago } from "../../components/Duration";
import { Icon } from "../../components/Icon";
import { Panel } from "../../components/Panel";
import { href, jobHref } from "../../lib/address";
import { number, plural } from "../../lib/format";
import { useLoad } from "../../lib/query";
import { useWorkspace } from "../../lib/session";
import { addressOf, type Asset, type AssetKind, inputsThatAre } from "./types";

/** So many of the newest jobs are looked through, as many at once as a list with inputs gives. */
const [AT_ONCE, MOST_JOBS] = [100, 300];
const MOST_SHOWN = 20;

export function Lineage({ kind, asset }: { kind: AssetKind; asset: Asset }) {
  const workspace = useWorkspace();
  const url = asset.job ? api(workspace, ["jobs", asset.job]) : null;
  const { data: job, error } = useLoad(url, (signal) => get<Job>(url as string, signal));
  const metrics = Object.entries(job?.metrics ?? {});
  return (
    <>
      <Panel title="Lineage">
        <ol class="lineage">
          <Made asset={asset} job={job} isGone={!!error && error.status === 404} />
          <li class="lineage-step lineage-this"><p class="lineage-head"><Icon name={kind} />{asset.name}</p><p class="mono dim">{addressOf(asset)}</p></li>
          <Users asset={asset} />
        </ol>
      </Panel>
      {job && metrics.length > 0 && (
        <Panel title="Last values of the job that made it" aside={<a class="link" href={jobHref(workspace, job.name, { tab: "metrics" })}>Charts</a>}>
          <dl class="figures">{metrics.map(([key, value]) => <div key={key}><dt title={key}>{key}</dt><dd>{number(value)}</dd></div>)}</dl>
        </Panel>
      )}
    </>
  );
}

function Made({ asset, job, isGone }: { asset: Asset; job: Job | undefined; isGone: boolean }) {
  const workspace = useWorkspace();
  if (!asset.job) return <Step icon="file" head="Uploaded"><p class="dim">by {asset.owner}, <Ago at={asset.created_at} /></p></Step>;
  if (isGone) return <Step icon="jobs" head={asset.job}><p class="dim">This job was deleted.</p></Step>;
  return (
    <Step icon="jobs" head={<a href={jobHref(workspace, asset.job)}>{job?.display_name || asset.job}</a>}>
      {job && <p><StatusBadge status={job.status} /></p>}
      {job && <p class="dim">in <a href={href(workspace, "jobs", [], { experiment: job.experiment_name })}>{job.experiment_name}</a></p>}
      {job && <Inputs job={job} />}
    </Step>
  );
}

/** What the job itself read, so that one can go on upwards. */
function Inputs({ job }: { job: Job }) {
  const workspace = useWorkspace();
  const named = Object.values(job.spec.inputs ?? {}).flatMap((value) => {
    const input = value as { path?: unknown; type?: unknown } | null;
    const found = /^azureml:([^:/@]+):([^/]+)$/.exec(String(input?.path ?? ""));
    return found ? [{ name: found[1] ?? "", version: found[2] ?? "", kind: /model$/.test(String(input?.type)) ? "models" : "data" }] : [];
  });
  if (!named.length) return null;
  return <p class="dim">from {named.map(({ name, version, kind }, at) => <span key={at}>{at > 0 && ", "}<a href={href(workspace, kind, [name, version])}>{name}:{version}</a></span>)}</p>;
}

async function newestJobs(workspace: string, signal: AbortSignal): Promise<Page<JobRow>> {
  const value: JobRow[] = [];
  let next: Page<JobRow>["next"] = null;
  do {
    const page: Page<JobRow> = await get(api(workspace, ["jobs"], { column: "inputs", archived: "true", limit: AT_ONCE, before: next }), signal);
    value.push(...page.value);
    next = page.next ?? null;
  } while (next !== null && value.length < MOST_JOBS);
  return { value, next };
}

function Users({ asset }: { asset: Asset }) {
  const workspace = useWorkspace();
  const { data, error } = useLoad(`inputs of jobs/${workspace}`, (signal) => newestJobs(workspace, signal));
  if (error && !data) return <Step icon="jobs" head="Used by"><p class="dim">{error.message}</p></Step>;
  if (!data) return <Step icon="jobs" head="Used by"><p class="dim">Looking …</p></Step>;
  const users = data.value.filter((row) => inputsThatAre(asset, row.inputs ?? {}).length);
  return (
    <Step icon="jobs" head={users.length ? `Used by ${plural(users.length, "job")}` : "Used by no job yet"}>
      {users.length > 0 && (
        <ul class="lineage-jobs">{users.slice(0, MOST_SHOWN).map((row) => <li key={row.name}><StatusBadge status={row.status} /><a href={jobHref(workspace, row.name)}>{row.display_name || row.name}</a></li>)}</ul>
      )}
      {users.length > MOST_SHOWN && <p class="dim">and {users.length - MOST_SHOWN} more</p>}
      {data.next && <p class="dim">among the {MOST_JOBS} newest jobs</p>}
    </Step>
  );
}

function Step({ icon, head, children }: { icon: "jobs" | "file"; head: ComponentChildren; children?: ComponentChildren }) {
  return <li class="lineage-step"><p class="lineage-head"><Icon name={icon} />{head}</p>{children}</li>;
}
