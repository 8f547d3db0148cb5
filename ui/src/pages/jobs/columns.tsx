/** The columns of the list of jobs: the job itself, then what the person chose. */
import { sparkline } from "../../charts/series";
import type { ChartData, JobRow } from "../../api/model";
import { Badge, StatusBadge } from "../../components/Badge";
import { Ago, Duration } from "../../components/Duration";
import type { Column } from "../../components/Table";
import { href, jobHref } from "../../lib/address";
import { number } from "../../lib/format";
import { splitColumn } from "./listState";

const SPARK_WIDTH = 64;
const SPARK_HEIGHT = 20;
/** Types whose work is done by jobs of their own. */
const PARENTS: Readonly<Record<string, string>> = { sweep: "Sweep", pipeline: "Pipeline" };

export function jobColumns(workspace: string, chosen: readonly string[], sparks: ReadonlyMap<string, ChartData>): Column<JobRow>[] {
  const first = chosen.find((name) => name.startsWith("metrics."));
  return [
    { id: "display_name", head: "Name", sortable: true, width: "grow", cell: (row) => <Name workspace={workspace} row={row} /> },
    { id: "status", head: "Status", cell: (row) => <StatusBadge status={row.status} /> },
    ...chosen.map((name) => valueColumn(name, name === first ? sparks : null)),
    { id: "duration_s", head: "Duration", sortable: true, numeric: true, cell: (row) => <Duration start={row.started_at} end={row.ended_at} seconds={row.duration_s} /> },
    { id: "experiment_name", head: "Experiment", cell: (row) => <a class="clip" href={href(workspace, "jobs", [], { experiment: row.experiment_name })}>{row.experiment_name}</a> },
    { id: "compute", head: "Compute", cell: (row) => <Place workspace={workspace} row={row} /> },
    { id: "owner", head: "Owner", sortable: true, cell: (row) => <a href={href(workspace, "jobs", [], { owner: row.owner })}>{row.owner}</a> },
    { id: "created_at", head: "Created", sortable: true, numeric: true, cell: (row) => <span class="dim"><Ago at={row.created_at} /></span> },
  ];
}

function Name({ workspace, row }: { workspace: string; row: JobRow }) {
  return (
    <span class="job-name">
      <span class="job-title">
        <a class="job-link" href={jobHref(workspace, row.name)}>{row.display_name || row.name}</a>
        {row.type in PARENTS && <Badge tone="grey">{PARENTS[row.type]}</Badge>}
        {row.display_name !== row.name && <span class="job-id mono">{row.name}</span>}
        {Object.entries(row.tags).slice(0, 2).map(([key, value]) => (
          <a key={key} class="tag" href={href(workspace, "jobs", [], { tag: value ? `${key}=${value}` : key })}>{value ? `${key}: ${value}` : key}</a>
        ))}
      </span>
      {row.error && <span class="job-why status-red" title={row.error.message}>{row.error.message}</span>}
      {!row.error && row.waiting && <span class="job-why status-amber" title={row.waiting}>{row.waiting}</span>}
    </span>
  );
}

function Place({ workspace, row }: { workspace: string; row: JobRow }) {
  if (!row.compute) return <span class="dim">–</span>;
  const ranks = row.node_count * row.processes_per_node;
  return (
    <>
      <a href={href(workspace, "computes", [row.compute])}>{row.compute}</a>
      {row.node_count > 1 || ranks > 1 ? <span class="dim"> × {row.node_count}{row.processes_per_node > 1 ? ` × ${row.processes_per_node}` : ""}</span> : null}
    </>
  );
}

function valueColumn(name: string, sparks: ReadonlyMap<string, ChartData> | null): Column<JobRow> {
  const [group, key] = splitColumn(name);
  return {
    id: name,
    head: <span class="clip">{group === "metrics" ? `last ${key}` : key}</span>,
    title: `${group}: ${key}`,
    sortable: true,
    numeric: true,
    cell: (row) => {
      const value = row[group]?.[key];
      const chart = sparks?.get(row.name);
      const text = typeof value === "object" ? JSON.stringify(value) : number(value) || String(value ?? "");
      return (
        <span class="value">
          {chart && <Spark data={chart} />}
          <span class="clip" title={text}>{text}</span>
        </span>
      );
    },
  };
}

function Spark({ data }: { data: ChartData }) {
  const path = sparkline(data, SPARK_WIDTH, SPARK_HEIGHT);
  if (!path) return null;
  return <svg class="spark" width={SPARK_WIDTH} height={SPARK_HEIGHT} viewBox={`0 0 ${SPARK_WIDTH} ${SPARK_HEIGHT}`} aria-hidden="true"><path d={path} /></svg>;
}
