/** One cluster: who runs where, what waits and why, how full it was, who used how much. */
import { useMemo } from "preact/hooks";
import { api, get } from "../../api/client";
import type { Page } from "../../api/model";
import { Badge } from "../../components/Badge";
import { Choice } from "../../components/Button";
import { Ago } from "../../components/Duration";
import { ErrorNote, Loading } from "../../components/Empty";
import { Icon } from "../../components/Icon";
import { Facts, PageHead, Panel } from "../../components/Panel";
import { type Column, Table } from "../../components/Table";
import { href, jobHref } from "../../lib/address";
import { duration, plural } from "../../lib/format";
import { useLoad, useThrottled } from "../../lib/query";
import { setQuery, useAddress } from "../../lib/router";
import { useEvent, useWorkspace } from "../../lib/session";
import { Size } from "./ComputeList";
import { busyNodes, type ClusterNode, type Compute, type Engine, type EngineMachine, type History, hours, type JoinedMachine, type Nodes, occupancyText, type PeopleHours, stateTone } from "./computes";
import { NodeBar } from "./NodeBar";
import { Occupancy } from "./Occupancy";
import { FirstCommand, JobsOf, Machines, MoreWaiting, Queue } from "./tables";

const DAY_MS = 86_400_000;
const PERIODS = { day: ["24 h", DAY_MS], week: ["7 days", 7 * DAY_MS], month: ["30 days", 30 * DAY_MS] } as const;
type Period = keyof typeof PERIODS;

export function ClusterPage({ name }: { name: string }) {
  const workspace = useWorkspace();
  const url = api(workspace, ["computes", name]);
  const { data: compute, error, reload } = useLoad(url, (signal) => get<Compute>(url, signal));
  const nodesUrl = api(workspace, ["computes", name, "nodes"]);
  const nodes = useLoad(compute ? nodesUrl : null, (signal) => get<Nodes>(nodesUrl, signal));
  const again = useThrottled(() => { reload(); nodes.reload(); }, 800);
  useEvent("compute", (event) => { if (event.compute === name) again(); });
  useEvent("job", again);
  useEvent("refresh", again);
  if (!compute) return error ? <ErrorNote error={error} /> : <Loading label="Loading the cluster" />;
  return (
    <>
      <PageHead
        title={compute.name}
        above={<a href={href(workspace, "computes")}>Compute</a>}
        beside={<><Badge tone={compute.allocation_state === "Steady" ? "green" : "amber"}>{compute.allocation_state}</Badge><span class="occupancy" title={occupancyText(compute)}><NodeBar compute={compute} /><span class="dim number">{busyNodes(compute)} of {compute.max_instances} busy</span></span></>}
      />
      {nodes.error && <ErrorNote error={nodes.error} />}
      <div class="overview">
        <div class="overview-main">
          <RunningNodes nodes={nodes.data} compute={compute} />
          <WaitingJobs nodes={nodes.data} compute={name} />
          <Usage compute={compute} />
          {nodes.data && nodes.data.machines.length > 0 && <Panel title={`Machines of ${compute.engine}`} flush><EngineMachines machines={nodes.data.machines} /></Panel>}
          <Joined compute={name} />
        </div>
        <div class="overview-side"><About compute={compute} /><EngineFacts compute={compute} /></div>
      </div>
    </>
  );
}

function RunningNodes({ nodes, compute }: { nodes: Nodes | undefined; compute: Compute }) {
  const workspace = useWorkspace();
  const columns: Column<ClusterNode>[] = [
    { id: "name", head: "Node", cell: (row) => <span class="strong">{row.name}</span> },
    { id: "state", head: "State", cell: (row) => <Badge tone={stateTone(row.state)}>{row.state}</Badge> },
    { id: "job", head: "Job", width: "grow", cell: (row) => row.job ? <><a class="job-link" href={jobHref(workspace, row.job)}>{row.job}</a>{row.rank != null && <span class="dim"> node {row.rank}</span>}</> : <span class="dim">–</span> },
    { id: "devices", head: "GPUs", cell: (row) => <Devices devices={row.devices} /> },
    { id: "owner", head: "Owner", cell: (row) => <JobsOf owner={row.owner} /> },
    { id: "since", head: "Since", numeric: true, cell: (row) => <span class="dim"><Ago at={row.since} /></span> },
  ];
  if (!nodes) return <Panel title="Nodes"><Loading /></Panel>;
  return (
    <Panel title="Nodes" aside={<span class="number">{nodes.value.length} of at most {compute.max_instances}</span>} flush={nodes.value.length > 0}>
      {nodes.value.length > 0
        ? <Table label="Nodes" columns={columns} rows={nodes.value} keyOf={(row) => row.name} />
        : <FirstJob compute={compute.name} />}
    </Panel>
  );
}

function FirstJob({ compute }: { compute: string }) {
  return <FirstCommand command={`yard job create -f job.yml --set compute=azureml:${compute}`}>No nodes are up: the first job starts one.</FirstCommand>;
}

function Devices({ devices }: { devices: readonly Record<string, unknown>[] }) {
  if (!devices.length) return <span class="dim">–</span>;
  const names = devices.map((device) => String(device.name ?? device.kind ?? device.id ?? "GPU"));
  return <span title={names.join("\n")}>{devices.length} × {names[0]}</span>;
}

function WaitingJobs({ nodes, compute }: { nodes: Nodes | undefined; compute: string }) {
  if (!nodes) return null;
  const jobs = nodes.waiting.map((job) => ({ ...job, compute }));
  return (
    <Panel title="Queue" aside={nodes.waiting_count > 0 && <span class="number">{plural(nodes.waiting_count, "job")}</span>} flush={jobs.length > 0}>
      {jobs.length > 0 ? <><Queue jobs={jobs} one /><MoreWaiting listed={jobs.length} all={nodes.waiting_count} /></> : <p class="dim">No job waits for nodes here.</p>}
    </Panel>
  );
}

/** Occupancy and node-hours of the period that the address names. */
function Usage({ compute }: { compute: Compute }) {
  const workspace = useWorkspace();
  const { query } = useAddress();
  const asked = query.get("period") ?? "";
  const period: Period = asked in PERIODS ? (asked as Period) : "day";
  // The moment stays while the period does: else each drawing would ask anew.
  const until_ms = useMemo(() => Date.now(), [period]);
  const since_ms = until_ms - PERIODS[period][1];
  const historyUrl = api(workspace, ["computes", compute.name, "history"]);
  const history = useLoad(historyUrl, (signal) => get<History>(historyUrl, signal));
  const peopleUrl = api(workspace, ["computes", compute.name, "people"], { since: new Date(since_ms).toISOString() });
  const people = useLoad(peopleUrl, (signal) => get<PeopleHours>(peopleUrl, signal));
  const again = useThrottled(() => { history.reload(); people.reload(); }, 5000);
  useEvent("compute", (event) => { if (event.compute === compute.name) again(); });
  const options = (Object.keys(PERIODS) as Period[]).map((key) => [key, PERIODS[key][0]] as const);
  return (
    <>
      <Panel title="Occupancy" aside={<Choice label="Period" value={period} options={options} onChange={(value) => setQuery({ period: value === "day" ? null : value }, false)} />}>
        {history.error && <ErrorNote error={history.error} />}
        {history.data && <Occupancy history={history.data} since_ms={since_ms} until_ms={until_ms} most={compute.max_instances} />}
      </Panel>
      <Panel title="Node-hours by person" aside={PERIODS[period][0]} flush={!!people.data?.value.length}>
        {people.error && <ErrorNote error={people.error} />}
        {people.data && (people.data.value.length > 0 ? <People people={people.data} /> : <p class="dim">Nobody used nodes in this period.</p>)}
      </Panel>
    </>
  );
}

function People({ people }: { people: PeopleHours }) {
  const rows = [...people.value].sort((a, b) => b.node_hours - a.node_hours);
  const most = Math.max(1e-9, ...rows.map((row) => row.node_hours));
  const hasGpus = rows.some((row) => row.gpu_hours > 0);
  const columns: Column<(typeof rows)[number]>[] = [
    { id: "owner", head: "Person", cell: (row) => <span class="strong"><JobsOf owner={row.owner} /></span> },
    { id: "share", head: <span class="visually-hidden">Share</span>, width: "grow", cell: (row) => (
      <svg class="share" width="100%" height="8" aria-hidden="true"><rect width={`${(100 * row.node_hours) / most}%`} height="8" rx="2" /></svg>
    ) },
    { id: "jobs", head: "Jobs", numeric: true, cell: (row) => row.job_count },
    { id: "hours", head: "Node-hours", numeric: true, cell: (row) => hours(row.node_hours) },
    ...(hasGpus ? [{ id: "gpus", head: "GPU-hours", numeric: true, cell: (row: (typeof rows)[number]) => hours(row.gpu_hours) }] : []),
  ];
  return <Table label="Node-hours by person" columns={columns} rows={rows} keyOf={(row) => row.owner} />;
}

function EngineMachines({ machines }: { machines: readonly EngineMachine[] }) {
  const workspace = useWorkspace();
  const columns: Column<EngineMachine>[] = [
    { id: "name", head: "Machine", cell: (row) => <><span class="strong">{row.name}</span> <span class="dim mono">{row.address}</span></> },
    { id: "state", head: "State", cell: (row) => <><Badge tone={stateTone(row.state)}>{row.state}</Badge>{row.reason && <span class="dim"> {row.reason}</span>}</> },
    { id: "users", head: "Jobs", width: "grow", cell: (row) => row.users.length ? row.users.map((job, at) => <>{at > 0 && ", "}<a key={job} href={jobHref(workspace, job)}>{job}</a></>) : <span class="dim">–</span> },
    { id: "cpus", head: "Cores", numeric: true, cell: (row) => row.cpus || "–" },
    { id: "gpus", head: "GPUs", numeric: true, cell: (row) => row.gpus ? `${row.gpus} × ${row.gpu_kind || "GPU"}` : "–" },
  ];
  return <Table label="Machines of the engine" columns={columns} rows={machines} keyOf={(row) => row.name} />;
}

function Joined({ compute }: { compute: string }) {
  const workspace = useWorkspace();
  const url = api(workspace, ["machines"], { compute });
  const { data } = useLoad(url, (signal) => get<Page<JoinedMachine>>(url, signal));
  if (!data?.value.length) return null;
  return <Panel title="Joined machines" flush><Machines machines={data.value} one /></Panel>;
}

function About({ compute }: { compute: Compute }) {
  return (
    <Panel title="About">
      <Facts rows={[
        ["Engine", compute.engine],
        ["Size", <Size compute={compute} />],
        ["Nodes", `${compute.min_instances} to ${compute.max_instances}`],
        ["Wanted now", compute.target_node_count !== compute.current_node_count && plural(compute.target_node_count, "node")],
        ["Idle nodes stop", compute.min_instances < compute.max_instances && `after ${duration(compute.idle_time_before_scale_down)}`],
        ["Tier", compute.tier.replace("_", " ")],
        ["Owner", compute.owner && <JobsOf owner={compute.owner} />],
        ["Created", <Ago at={compute.created_at} />],
        ["Description", compute.description],
        ...Object.entries(compute.tags).map(([key, value]) => [`tag ${key}`, value] as const),
      ]} />
    </Panel>
  );
}

/** What Ray or Slurm says of itself; the local engine has nothing to say. */
function EngineFacts({ compute }: { compute: Compute }) {
  const workspace = useWorkspace();
  const url = api(workspace, ["computes", compute.name, "engine"]);
  const { data, error } = useLoad(compute.engine === "local" ? null : url, (signal) => get<Engine>(url, signal));
  if (compute.engine === "local") return null;
  if (error) return <ErrorNote error={error} />;
  if (!data) return null;
  return (
    <Panel title="Engine">
      <Facts rows={[["Version", data.version && `${data.engine} ${data.version}`], ["Python", data.python], ["Nodes at most", data.most_nodes > 0 && data.most_nodes]]} />
      {data.notices.length > 0 && <ul class="notices">{data.notices.map((notice, at) => <li key={at}><Icon name="info" size={14} /><span>{notice}</span></li>)}</ul>}
    </Panel>
  );
}
