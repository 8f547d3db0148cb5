/** All versions of one name; those of models with the metrics of the jobs that made them. */
import { api, get } from "../../api/client";
import type { Job } from "../../api/model";
import { Badge } from "../../components/Badge";
import { Button } from "../../components/Button";
import { Ago } from "../../components/Duration";
import { type Column, Table } from "../../components/Table";
import { href, jobHref } from "../../lib/address";
import { number } from "../../lib/format";
import { useLoad } from "../../lib/query";
import { useWorkspace } from "../../lib/session";
import { MOST_JOBS } from "../compare/differences";
import { Stage } from "./AssetList";
import { type Asset, type AssetKind } from "./types";

const MOST_METRICS = 4;

export function Versions({ kind, versions, chosen }: { kind: AssetKind; versions: readonly Asset[]; chosen: string }) {
  const workspace = useWorkspace();
  const names = [...new Set(versions.map((each) => each.job).filter(Boolean))].slice(0, MOST_JOBS);
  const key = names.length ? `versions/${workspace}/${names.join("\n")}` : null;
  const one = (name: string, signal: AbortSignal): Promise<Job | null> => get<Job>(api(workspace, ["jobs", name]), signal).catch((error) => {
    // A job may have been deleted since.
    if ((error as { status?: number }).status === 404) return null;
    throw error;
  });
  const { data } = useLoad(key, (signal) => Promise.all(names.map((name) => one(name, signal))));
  const jobs = new Map((data ?? []).flatMap((job) => (job ? [[job.name, job] as const] : [])));
  return (
    <>
      {jobs.size > 1 && <div class="toolbar"><Button icon="compare" href={href(workspace, "compare", [], { job: [...jobs.keys()] })}>Compare the jobs that made them</Button></div>}
      <Table label="Versions" rows={versions} keyOf={(row) => String(row.version)} rowClass={(row) => (String(row.version) === chosen ? "is-selected" : "")} columns={columnsOf(workspace, kind, jobs)} />
    </>
  );
}

function columnsOf(workspace: string, kind: AssetKind, jobs: ReadonlyMap<string, Job>): Column<Asset>[] {
  return [
    { id: "version", head: "Version", cell: (row) => <><a href={href(workspace, kind, [row.name, String(row.version)])}>{row.version}</a>{row.archived && <> <Badge tone="grey">Archived</Badge></>}</> },
    ...(kind === "models" ? [{ id: "stage", head: "Stage", cell: (row: Asset) => <Stage asset={row} /> }] : []),
    ...metricsOf([...jobs.values()]).map((metric) => ({ id: `metric/${metric}`, head: <span class="clip">last {metric}</span>, title: `last ${metric}`, numeric: true, cell: (row: Asset) => number(jobs.get(row.job)?.metrics[metric]) || <span class="dim">–</span> })),
    { id: "job", head: "Made by", cell: (row) => (row.job ? <a class="clip" href={jobHref(workspace, row.job)}>{jobs.get(row.job)?.display_name || row.job}</a> : <span class="dim">upload</span>) },
    { id: "description", head: "Description", width: "grow", cell: (row) => <span class="clip" title={row.description}>{row.description}</span> },
    { id: "owner", head: "Owner", cell: (row) => <a href={href(workspace, "jobs", [], { owner: row.owner })}>{row.owner}</a> },
    { id: "created_at", head: "Created", numeric: true, cell: (row) => <span class="dim"><Ago at={row.created_at} /></span> },
  ];
}

/** Those that most of the jobs have. */
function metricsOf(jobs: readonly Job[]): string[] {
  const counts = new Map<string, number>();
  for (const job of jobs) for (const key of Object.keys(job.metrics)) counts.set(key, (counts.get(key) ?? 0) + 1);
  return [...counts].sort((a, b) => b[1] - a[1] || a[0].localeCompare(b[0])).slice(0, MOST_METRICS).map(([key]) => key);
}
