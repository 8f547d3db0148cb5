/** Tables that both pages of compute show: jobs that wait, machines that people have joined. */
import type { ComponentChildren } from "preact";
import { Badge } from "../../components/Badge";
import { Copy } from "../../components/Copy";
import { Ago } from "../../components/Duration";
import { type Column, Table } from "../../components/Table";
import { href, jobHref } from "../../lib/address";
import { bytes, plural } from "../../lib/format";
import { useWorkspace } from "../../lib/session";
import { type JoinedMachine, nodeText, stateTone, type WaitingJob } from "./computes";

export type Waiting = WaitingJob & { compute: string };

export function ComputeLink({ name }: { name: string }) {
  return <a href={href(useWorkspace(), "computes", [name])}>{name}</a>;
}

export function JobsOf({ owner }: { owner: string }) {
  const workspace = useWorkspace();
  return owner ? <a href={href(workspace, "jobs", [], { owner })}>{owner}</a> : <span class="dim">–</span>;
}

/** What a part of the page that is empty begins with. */
export function FirstCommand({ command, children }: { command: string; children: ComponentChildren }) {
  return (
    <div class="first">
      <p class="dim">{children}</p>
      <div class="command command-shell"><code tabIndex={0}>{command}</code><Copy text={command} label="Copy the command" /></div>
    </div>
  );
}

/** Each job with the reason why it waits, the first of each queue first. */
export function Queue({ jobs, one }: { jobs: readonly Waiting[]; one?: boolean }) {
  const workspace = useWorkspace();
  const columns: Column<Waiting>[] = [
    { id: "job", head: "Job", width: "grow", cell: (row) => (
      <span class="job-name">
        <span class="job-title"><a class="job-link" href={jobHref(workspace, row.job)}>{row.job}</a></span>
        <span class="job-why wraps status-amber">{row.why}</span>
      </span>
    ) },
    ...(one ? [] : [{ id: "compute", head: "Compute", cell: (row: Waiting) => <ComputeLink name={row.compute} /> }]),
    { id: "nodes", head: "Nodes", numeric: true, cell: (row) => row.node_count },
    { id: "owner", head: "Owner", cell: (row) => <JobsOf owner={row.owner} /> },
    { id: "since", head: "Waits since", numeric: true, cell: (row) => <span class="dim"><Ago at={row.since} /></span> },
  ];
  return <Table label="Jobs that wait" columns={columns} rows={jobs} keyOf={(row) => `${row.compute}/${row.job}`} />;
}

/** Jobs that wait beyond those that are listed. */
export function MoreWaiting({ listed, all }: { listed: number; all: number }) {
  return all > listed ? <p class="panel-note dim">and {plural(all - listed, "more job", "more jobs")} behind them</p> : null;
}

export function Machines({ machines, one }: { machines: readonly JoinedMachine[]; one?: boolean }) {
  const columns: Column<JoinedMachine>[] = [
    { id: "name", head: "Machine", width: "grow", cell: (row) => <><span class="strong">{row.name}</span> <span class="dim mono">{row.address}</span></> },
    { id: "state", head: "State", cell: (row) => <Badge tone={stateTone(row.state)}>{row.state}</Badge> },
    ...(one ? [] : [{ id: "compute", head: "Compute", cell: (row: JoinedMachine) => <ComputeLink name={row.compute} /> }]),
    { id: "has", head: "Has", cell: ({ facts }) => nodeText({ cores: facts.cpus ?? 0, gpus: facts.gpus ?? 0, gpu_kind: facts.gpu_kind ?? "" }, facts.memory_bytes ? bytes(facts.memory_bytes) : "") },
    { id: "owner", head: "Joined by", cell: (row) => <JobsOf owner={row.owner} /> },
    { id: "seen", head: "Last seen", numeric: true, cell: (row) => <span class="dim"><Ago at={row.seen_at} /></span> },
  ];
  return <Table label="Joined machines" columns={columns} rows={machines} keyOf={(row) => `${row.compute}/${row.name}`} />;
}
