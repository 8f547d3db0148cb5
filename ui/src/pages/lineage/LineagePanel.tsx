/** Where a version or a job comes from and what was made of it: a graph, and a table of the same. */
import type { ComponentChildren } from "preact";
import { useMemo } from "preact/hooks";
import { api, get } from "../../api/client";
import { StatusBadge } from "../../components/Badge";
import { ErrorNote } from "../../components/Empty";
import { Icon } from "../../components/Icon";
import { Panel } from "../../components/Panel";
import { type Column, Table } from "../../components/Table";
import { Graph } from "../../graph/Graph";
import { count } from "../../lib/format";
import { useLoad, useThrottled } from "../../lib/query";
import { navigate } from "../../lib/router";
import { useEvent, useWorkspace } from "../../lib/session";
import { graphOf, hrefOf, iconOf, labelOf, type Lineage, type LineageNode, sayAfter, sayKinds, wordFor } from "./lineage";

type Row = LineageNode & { sources: string };

interface Props {
  /** The end of its address: `["jobs", NAME]`. */
  of: readonly string[];
  /** Said where nothing leads to it. */
  origin: ComponentChildren;
}

export function LineagePanel({ of, origin }: Props) {
  const workspace = useWorkspace();
  const url = api(workspace, ["lineage", ...of]);
  const { data, error, reload } = useLoad(url, (signal) => get<Lineage>(url, signal));
  const again = useThrottled(reload, 3000);
  useEvent("job", (event) => { if (data?.nodes.some((node) => node.kind === "job" && node.name === event.name && node.status !== (event.job?.status ?? ""))) again(); });
  useEvent("refresh", again);
  const graph = useMemo(() => data && graphOf(data), [data]);
  if (!data || !graph) return error && <Panel title="Lineage"><ErrorNote error={error} /></Panel>;
  const isOf = new Set(data.of);
  const notes = [
    !data.edges.some((edge) => isOf.has(edge.target)) && origin,
    !data.edges.some((edge) => isOf.has(edge.source)) && "Used by nothing yet.",
    !data.is_whole && `Only the nearest ${count(data.nodes.length)} are shown.`,
  ].filter(Boolean);
  const note = notes.length > 0 && <p class="lineage-note">{notes.map((each, at) => <span key={at}>{each} </span>)}</p>;
  if (!data.edges.length) return note && <Panel flush title="Lineage">{note}</Panel>;
  const open = (at: string): void => {
    const node = data.nodes[Number(at)];
    const to = node && hrefOf(workspace, node);
    if (to) navigate(to);
  };
  const rows = data.nodes.map((node, at) => ({ ...node, sources: sayAfter(graph.nodes, at) }));
  return (
    <Graph name={`${of[1]}-lineage`} title="Lineage" of="jobs and assets" summary={sayKinds(data.nodes)} nodes={graph.nodes} selected={graph.selected} isAround onOpen={open}>
      {note}
      <Table<Row> label="Lineage" columns={columnsOf(workspace)} rows={rows} keyOf={(row) => row.id} rowClass={(row) => (isOf.has(row.id) ? "is-selected" : "")} />
    </Graph>
  );
}

function columnsOf(workspace: string): Column<Row>[] {
  return [
    { id: "name", head: "Name", width: "grow", cell: (row) => {
      const to = hrefOf(workspace, row);
      return to ? <a class="job-link" href={to} title={row.name}>{labelOf(row)}</a> : row.name;
    } },
    { id: "kind", head: "Kind", cell: (row) => (row.status ? <StatusBadge status={row.status} /> : <span class="status"><Icon name={iconOf(row)} size={14} />{wordFor(row)}</span>) },
    { id: "sources", head: "Comes from", width: "grow", cell: (row) => <span class="step-takes" title={row.sources}>{row.sources || "–"}</span> },
  ];
}
