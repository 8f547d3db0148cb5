/** All clusters at a glance: how full each is, what waits and why, machines that people joined. */
import { api, get } from "../../api/client";
import type { Page } from "../../api/model";
import { Badge } from "../../components/Badge";
import { Empty, ErrorNote, Loading } from "../../components/Empty";
import { PageHead, Panel } from "../../components/Panel";
import { type Column, Table } from "../../components/Table";
import { bytes, plural } from "../../lib/format";
import { useLoad, useThrottled } from "../../lib/query";
import { useEvent, useWorkspace } from "../../lib/session";
import { busyNodes, type Compute, type JoinedMachine, nodeText, type Nodes, occupancyText } from "./computes";
import { NodeBar } from "./NodeBar";
import { ComputeLink, FirstCommand, JobsOf, Machines, MoreWaiting, Queue, type Waiting } from "./tables";

/** Queues that are read for the list; the others are on their clusters' pages. */
const MOST_QUEUES = 24;

interface Queues {
  waiting: Waiting[];
  counts: ReadonlyMap<string, number>;
}

export function ComputeList() {
  const workspace = useWorkspace();
  const url = api(workspace, ["computes"]);
  const { data, error, loading, reload } = useLoad(url, (signal) => get<Page<Compute>>(url, signal));
  const computes = data?.value ?? [];
  const queues = useQueues(computes);
  const machinesUrl = api(workspace, ["machines"]);
  const machines = useLoad(machinesUrl, (signal) => get<Page<JoinedMachine>>(machinesUrl, signal));
  const again = useThrottled(() => { reload(); queues.reload(); }, 1000);
  useEvent("compute", again);
  useEvent("job", again);
  useEvent("refresh", () => { again(); machines.reload(); });

  const waiting = queues.data?.waiting ?? [];
  const all = [...(queues.data?.counts.values() ?? [])].reduce((sum, many) => sum + many, 0);
  return (
    <>
      <PageHead title="Compute" beside={<Counts computes={computes} waiting={all} />} />
      {error && <ErrorNote error={error} />}
      {loading && <Loading label="Loading clusters" />}
      {data && !computes.length && (
        <Empty title="No clusters yet" command="yard compute create -n cpu-cluster --type amlcompute --max-instances 4">
          A cluster starts nodes when jobs need them and stops them when they are idle.
        </Empty>
      )}
      <div class="stack">
        {computes.length > 0 && <Table label="Clusters" columns={columnsOf(queues.data)} rows={computes} keyOf={(row) => row.name} />}
        {computes.length > 0 && (
          <Panel title="Queue" aside={all > 0 && <span class="number">{plural(all, "job")}</span>} flush={waiting.length > 0}>
            {waiting.length > 0 ? <><Queue jobs={waiting} /><MoreWaiting listed={waiting.length} all={all} /></> : <p class="dim">No job waits for nodes.</p>}
          </Panel>
        )}
        {machines.error && <ErrorNote error={machines.error} />}
        {machines.data && (
          <Panel title="Joined machines" flush={machines.data.value.length > 0}>
            {machines.data.value.length > 0
              ? <Machines machines={machines.data.value} />
              : <FirstCommand command="yard node join">No machine has joined. Run this on one: it becomes a node of a cluster.</FirstCommand>}
          </Panel>
        )}
      </div>
    </>
  );
}

/** The queues of all clusters. */
function useQueues(computes: readonly Compute[]) {
  const workspace = useWorkspace();
  const names = computes.slice(0, MOST_QUEUES).map((compute) => compute.name);
  const key = names.length ? `queues ${workspace} ${JSON.stringify(names)}` : null;
  return useLoad<Queues>(key, async (signal) => {
    const read = await Promise.all(names.map((name) => get<Nodes>(api(workspace, ["computes", name, "nodes"]), signal).catch(() => null)));
    return {
      waiting: read.flatMap((nodes, at) => (nodes?.waiting ?? []).map((job) => ({ ...job, compute: names[at] ?? "" }))),
      counts: new Map(read.map((nodes, at) => [names[at] ?? "", nodes?.waiting_count ?? 0])),
    };
  });
}

function Counts({ computes, waiting }: { computes: readonly Compute[]; waiting: number }) {
  if (!computes.length) return null;
  const busy = computes.reduce((sum, compute) => sum + busyNodes(compute), 0);
  return (
    <p class="dim counts">
      {plural(computes.length, "cluster")}
      {busy > 0 && <span class="status-blue">{plural(busy, "node")} busy</span>}
      {waiting > 0 && <span class="status-amber">{plural(waiting, "job")} waiting</span>}
    </p>
  );
}

function columnsOf(queues: Queues | undefined): Column<Compute>[] {
  return [
    { id: "name", head: "Name", width: "grow", cell: (row) => (
      <span class="job-name">
        <span class="job-title"><span class="job-link"><ComputeLink name={row.name} /></span>{row.type === "computeinstance" && <Badge tone="grey">compute instance</Badge>}</span>
        {row.description && <span class="job-why dim" title={row.description}>{row.description}</span>}
      </span>
    ) },
    { id: "nodes", head: "Nodes now", cell: (row) => (
      <span class="occupancy" title={occupancyText(row)}><NodeBar compute={row} /><span class="number">{busyNodes(row)} of {row.max_instances} busy</span></span>
    ) },
    { id: "waiting", head: "Waiting", numeric: true, cell: (row) => {
      const many = queues?.counts.get(row.name);
      return many ? <span class="status-amber strong">{many}</span> : <span class="dim">{many ?? "–"}</span>;
    } },
    { id: "scale", head: "Min – max", numeric: true, cell: (row) => `${row.min_instances} – ${row.max_instances}` },
    { id: "engine", head: "Engine", cell: (row) => row.engine },
    { id: "size", head: "Size", cell: (row) => <Size compute={row} /> },
    { id: "owner", head: "Owner", cell: (row) => <JobsOf owner={row.owner} /> },
  ];
}

export function Size({ compute }: { compute: Compute }) {
  const has = nodeText(compute, compute.memory_bytes ? bytes(compute.memory_bytes) : "");
  return <>{compute.size || "whole machine"}{has && <span class="dim"> {has}</span>}{compute.tier !== "dedicated" && <> <Badge tone="amber">{compute.tier.replace("_", " ")}</Badge></>}</>;
}
