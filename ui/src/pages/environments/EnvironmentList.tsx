/** All environments that jobs can name, found by name, description or package. */
import { api, get } from "../../api/client";
import type { Page } from "../../api/model";
import { Badge } from "../../components/Badge";
import { Button } from "../../components/Button";
import { Ago } from "../../components/Duration";
import { Empty, ErrorNote, Loading } from "../../components/Empty";
import { SearchField, Select } from "../../components/Field";
import { PageHead } from "../../components/Panel";
import { type Column, Table } from "../../components/Table";
import { href } from "../../lib/address";
import { bytes, plural } from "../../lib/format";
import { useLoad } from "../../lib/query";
import { setQuery, useAddress } from "../../lib/router";
import { useEvent, useWorkspace } from "../../lib/session";
import { type Environment, find, type Found, isCurated, packagesOf, pythonOf } from "./environments";

const KINDS = [["", "All"], ["registered", "Registered here"], ["curated", "Curated"]] as const;
const MOST_REASONS = 3;

export function EnvironmentList() {
  const workspace = useWorkspace();
  const { query } = useAddress();
  const text = query.get("text") ?? "";
  const kind = query.get("kind") ?? "";
  const archived = query.get("archived") === "1";
  const url = api(workspace, ["environments"], { archived: archived ? "only" : null });
  const { data, error, loading, reload } = useLoad(url, (signal) => get<Page<Environment>>(url, signal));
  useEvent("refresh", reload);
  // Curated ones are in every answer.
  const all = (data?.value ?? []).filter((each) => !archived || each.archived);
  const ofKind = all.filter((each) => !kind || isCurated(each) === (kind === "curated"));
  // A workspace's own come first.
  const rows = find(ofKind, text).sort((a, b) => Number(isCurated(a.environment)) - Number(isCurated(b.environment)));
  return (
    <>
      <PageHead title="Environments" beside={data && <p class="dim counts">{rows.length < all.length ? `${rows.length} of ${all.length}` : plural(all.length, "environment")}</p>} />
      <div class="filters">
        <div class="filters-choice" role="search">
          <SearchField label="Search names and packages" value={text} onInput={(typed) => setQuery({ text: typed })} />
          <Select label="Kind" value={kind} options={KINDS} onChange={(chosen) => setQuery({ kind: chosen }, false)} />
        </div>
        <span class="filters-gap" />
        <Button icon="archive" pressed={archived} onClick={() => setQuery({ archived: !archived })}>Archived</Button>
      </div>
      {error && <ErrorNote error={error} />}
      {loading && <Loading label="Loading environments" />}
      {data && !rows.length && <Nothing text={text} isFiltered={!!(text || kind || archived)} />}
      {rows.length > 0 && <Table label="Environments" columns={columnsFor(workspace)} rows={rows} keyOf={({ environment }) => `${environment.name}:${environment.version}`} />}
    </>
  );
}

function Nothing({ text, isFiltered }: { text: string; isFiltered: boolean }) {
  if (!isFiltered) return <Empty title="No environments yet" command="yard environment create -f environment.yml" />;
  return (
    <Empty title="No environment fits" command={text ? `yard environment resolve ${quoted(text)}` : "yard environment create -f environment.yml"}>
      <a class="link" href={location.pathname}>Show all environments</a>
      {text && ", or ask which one a name of Azure ML leads to"}
    </Empty>
  );
}

/** One word of a shell's command line. */
function quoted(text: string): string {
  return /^[\w./:@-]+$/.test(text) ? text : `'${text.replace(/'/g, "'\\''")}'`;
}

function columnsFor(workspace: string): Column<Found>[] {
  return [
    { id: "name", head: "Name", width: "grow", cell: ({ environment: row, packages }) => (
      <span class="job-name">
        <span class="job-title">
          <a class="job-link" href={href(workspace, "environments", [row.name])}>{row.name}</a>
          {row.archived && <Badge tone="grey">Archived</Badge>}
          {Object.entries(row.tags ?? {}).slice(0, 2).map(([key, value]) => <span key={key} class="tag">{value ? `${key}: ${value}` : key}</span>)}
        </span>
        {packages.length > 0
          ? <span class="job-why mono status-blue" title={packages.join("\n")}>{packages.slice(0, MOST_REASONS).join("  ")}{packages.length > MOST_REASONS && ` and ${packages.length - MOST_REASONS} more`}</span>
          : row.description && <span class="job-why dim" title={row.description}>{row.description}</span>}
      </span>
    ) },
    { id: "version", head: "Version", cell: ({ environment: row }) => <a href={href(workspace, "environments", [row.name, row.version])}>{row.version}</a> },
    { id: "kind", head: "Kind", cell: ({ environment: row }) => isCurated(row) ? <Badge tone="grey" title={row.status}>Curated</Badge> : <Badge tone="blue">Registered</Badge> },
    { id: "python", head: "Python", cell: ({ environment: row }) => pythonOf(row) || <span class="dim">–</span> },
    { id: "torch", head: "PyTorch", cell: ({ environment: row }) => row.torch || <span class="dim">–</span> },
    { id: "packages", head: "Packages", numeric: true, cell: ({ environment: row }) => packagesOf(row).length || <span class="dim">–</span> },
    { id: "size", head: "Size", numeric: true, cell: ({ environment: row }) => row.size_bytes ? bytes(row.size_bytes) : <span class="dim">–</span> },
    { id: "created", head: "Created", numeric: true, cell: ({ environment: row }) => row.created_at ? <span class="dim"><Ago at={row.created_at} />{row.owner && ` by ${row.owner}`}</span> : <span class="dim">–</span> },
  ];
}
