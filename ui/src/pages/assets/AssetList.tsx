/** Names of models or of data, each with its newest version. */
import type { ComponentChildren } from "preact";
import { api, get } from "../../api/client";
import type { Page } from "../../api/model";
import { Badge } from "../../components/Badge";
import { Button } from "../../components/Button";
import { Ago } from "../../components/Duration";
import { Empty, ErrorNote, Loading } from "../../components/Empty";
import { SearchField } from "../../components/Field";
import { type Column, type Sort, Table } from "../../components/Table";
import { href, jobHref } from "../../lib/address";
import { useLoad, useThrottled } from "../../lib/query";
import { setQuery, useAddress } from "../../lib/router";
import { useEvent, useWorkspace } from "../../lib/session";
import { type Asset, type AssetKind, fitting, stageOf } from "./types";

const MOST_SHOWN = 500;

export function AssetList({ kind, label, empty }: { kind: AssetKind; label: string; empty: ComponentChildren }) {
  const workspace = useWorkspace();
  const { query } = useAddress();
  const isArchived = query.get("archived") === "1";
  const text = query.get("text") ?? "";
  const by = query.get("sort");
  const sort = by ? { by, descending: query.get("descending") === "1" } : null;
  const url = api(workspace, [kind], { archived: isArchived ? "only" : "false" });
  const { data, error, loading, reload } = useLoad(url, (signal) => get<Page<Asset>>(url, signal));
  // A job that ends may have made a version.
  const again = useThrottled(reload, 2000);
  useEvent("job", again);
  useEvent("refresh", again);
  const rows = sorted(fitting(data?.value ?? [], text), sort);
  const isUnused = !!data && !data.value.length && !isArchived;
  return (
    <>
      {!isUnused && (
        <div class="filters">
          <div class="filters-choice" role="search"><SearchField label={`Search ${kind}`} value={text} onInput={(chosen) => setQuery({ text: chosen })} /></div>
          <span class="filters-gap" />
          <Button icon="archive" pressed={isArchived} onClick={() => setQuery({ archived: !isArchived })}>Archived</Button>
        </div>
      )}
      {error && <ErrorNote error={error} />}
      {loading && <Loading />}
      {isUnused && empty}
      {data && !isUnused && !rows.length && <Empty title={isArchived && !text ? "Nothing is archived" : "Nothing fits"}><a class="link" href={href(workspace, kind)}>Show all {kind}</a></Empty>}
      {rows.length > 0 && <Table label={label} columns={columnsOf(workspace, kind)} rows={rows.slice(0, MOST_SHOWN)} keyOf={(row) => row.name} sort={sort} onSort={(chosen) => setQuery({ sort: chosen?.by, descending: chosen?.descending })} />}
      {rows.length > MOST_SHOWN && <p class="list-more dim">The first {MOST_SHOWN} of {rows.length}: search for the others.</p>}
    </>
  );
}

function columnsOf(workspace: string, kind: AssetKind): Column<Asset>[] {
  return [
    { id: "name", head: "Name", sortable: true, width: "grow", cell: (row) => <AssetName workspace={workspace} kind={kind} row={row} /> },
    { id: "version", head: "Newest", numeric: true, cell: (row) => <a href={href(workspace, kind, [row.name, String(row.version)])}>{row.version}</a> },
    { id: "type", head: "Type", sortable: true, cell: (row) => row.type },
    ...(kind === "models" ? [{ id: "stage", head: "Stage", sortable: true, cell: (row: Asset) => <Stage asset={row} /> }] : []),
    { id: "job", head: "Made by", cell: (row) => (row.job ? <a class="clip" href={jobHref(workspace, row.job)}>{row.job}</a> : <span class="dim">upload</span>) },
    { id: "owner", head: "Owner", sortable: true, cell: (row) => <a href={href(workspace, "jobs", [], { owner: row.owner })}>{row.owner}</a> },
    { id: "created_at", head: "Created", sortable: true, numeric: true, cell: (row) => <span class="dim"><Ago at={row.created_at} /></span> },
  ];
}

function AssetName({ workspace, kind, row }: { workspace: string; kind: AssetKind; row: Asset }) {
  return (
    <span class="job-name">
      <span class="job-title">
        <a class="job-link" href={href(workspace, kind, [row.name])}>{row.name}</a>
        {Object.entries(row.tags).slice(0, 3).map(([key, value]) => (
          <a key={key} class="tag" href={href(workspace, kind, [], { text: value || key })}>{value ? `${key}: ${value}` : key}</a>
        ))}
      </span>
      {row.description && <span class="job-why dim" title={row.description}>{row.description}</span>}
    </span>
  );
}

export function Stage({ asset }: { asset: Asset }) {
  const stage = stageOf(asset);
  if (!stage) return <span class="dim">–</span>;
  return <Badge tone={/^prod/i.test(stage) ? "green" : /^stag/i.test(stage) ? "amber" : "grey"}>{stage}</Badge>;
}

function sorted(rows: readonly Asset[], sort: Sort | null): Asset[] {
  if (!sort) return [...rows];
  const value = (row: Asset): string => (sort.by === "stage" ? stageOf(row) : String(row[sort.by as keyof Asset] ?? ""));
  const sign = sort.descending ? -1 : 1;
  return [...rows].sort((a, b) => sign * value(a).localeCompare(value(b), undefined, { numeric: true }));
}
