/** The list of jobs: what runs, what waits and why, what learns, what went wrong.
 *
 * Sorted by a metric it is the leaderboard of an experiment.
 */
import { useMemo, useState } from "preact/hooks";
import { api, get } from "../../api/client";
import { ENDED, type ChartData, type Experiment, type JobRow, type Page } from "../../api/model";
import { Button } from "../../components/Button";
import { Empty, ErrorNote, Loading } from "../../components/Empty";
import { SearchField, Select } from "../../components/Field";
import { PageHead } from "../../components/Panel";
import { Table } from "../../components/Table";
import { count, plural } from "../../lib/format";
import { useLoad, useThrottled } from "../../lib/query";
import { setQuery, useAddress } from "../../lib/router";
import { useEvent, useFollow, useWorkspace } from "../../lib/session";
import { BulkActions } from "./BulkActions";
import { ColumnChoice } from "./ColumnChoice";
import { jobColumns } from "./columns";
import { listQuery, type ListState, PAGE, readState, splitColumn, usualColumns } from "./listState";

const STATUS_CHOICES = [
  ["", "Any status"], ["Running", "Running"], ["Queued", "Queued"], ["Preparing", "Preparing"],
  ["Completed", "Completed"], ["Failed", "Failed"], ["Canceled", "Canceled"],
] as const;
const MOST_FOLLOWED = 20;

export default function JobsPage(_: { names: string[] }) {
  const workspace = useWorkspace();
  const { query } = useAddress();
  const state = readState(query);
  const [selected, setSelected] = useState<Set<string>>(new Set());
  const [usual, setUsual] = useState<string[] | null>(null);
  const asked = state.columns ?? (state.limit > 100 ? usual : null);
  const url = api(workspace, ["jobs"], listQuery(state, asked));
  const { data, error, loading, reload } = useLoad(url, (signal) => get<Page<JobRow>>(url, signal));
  const rows = data?.value ?? [];
  const columns = state.columns ?? usual ?? usualColumns(rows);
  if (!usual && rows.length && !state.columns) setUsual(usualColumns(rows));

  const again = useThrottled(reload, 800);
  useEvent("job", again);
  useEvent("metrics", again);
  useEvent("refresh", again);
  const running = rows.filter((row) => !ENDED.has(row.status)).map((row) => row.name);
  useFollow(running.slice(0, MOST_FOLLOWED));
  const sparks = useSparks(rows, columns, running.length > 0);

  const shown = useMemo(() => jobColumns(workspace, columns, sparks), [workspace, columns.join("\n"), sparks]);
  const chosen = rows.filter((row) => selected.has(row.name));
  return (
    <>
      <PageHead title="Jobs" beside={<Counts rows={rows} more={!!data?.next} />} />
      <div class="filters">
        <Filters state={state} />
        <span class="filters-gap" />
        <Button icon="group" pressed={state.grouped} onClick={() => setQuery({ group: !state.grouped })}>Group</Button>
        <ColumnChoice rows={rows} chosen={columns} />
        <Button icon="archive" pressed={state.archived} onClick={() => setQuery({ archived: !state.archived })}>Archived</Button>
      </div>
      {error && <ErrorNote error={error} />}
      {loading && <Loading label="Loading jobs" />}
      {data && !rows.length && <NoJobs state={state} />}
      {rows.length > 0 && (
        <Table
          label="Jobs" columns={shown} rows={rows} keyOf={(row) => row.name}
          sort={state.sort} onSort={(sort) => setQuery({ sort: sort?.by, descending: sort?.descending })}
          selected={selected} onSelect={setSelected}
          {...(state.grouped ? { groupOf: (row: JobRow) => row.experiment_name, groupHead: (name: string, members: readonly JobRow[]) => <GroupHead name={name} rows={members} /> } : {})}
        />
      )}
      {data?.next && <p class="list-more"><Button onClick={() => setQuery({ limit: state.limit + (state.limit < 200 ? PAGE : 200) })}>Show more</Button></p>}
      <BulkActions jobs={chosen} onClear={() => setSelected(new Set())} onDone={reload} />
    </>
  );
}

function Counts({ rows, more }: { rows: readonly JobRow[]; more: boolean }) {
  const running = rows.filter((row) => row.status === "Running").length;
  const waiting = rows.filter((row) => !ENDED.has(row.status) && row.status !== "Running").length;
  if (!rows.length) return null;
  return (
    <p class="dim counts">
      {count(rows.length)}{more ? " newest" : ""}
      {running > 0 && <span class="status-blue">{running} running</span>}
      {waiting > 0 && <span class="status-amber">{waiting} waiting</span>}
    </p>
  );
}

function Filters({ state }: { state: ListState }) {
  const workspace = useWorkspace();
  const url = api(workspace, ["experiments"]);
  const { data } = useLoad(url, (signal) => get<Page<Experiment>>(url, signal));
  const names = data?.value.map((experiment) => experiment.name) ?? [];
  if (state.experiment && !names.includes(state.experiment)) names.unshift(state.experiment);
  return (
    <div class="filters-choice" role="search">
      <SearchField label="Search jobs" value={state.text} onInput={(text) => setQuery({ text, limit: null })} />
      <Select label="Status" value={state.status} options={STATUS_CHOICES} onChange={(status) => setQuery({ status }, false)} />
      <Select label="Experiment" value={state.experiment} options={[["", "Any experiment"], ...names.map((name) => [name, name] as const)]} onChange={(experiment) => setQuery({ experiment }, false)} />
      {state.owner && <Button icon="close" onClick={() => setQuery({ owner: null })}>of {state.owner}</Button>}
      {state.tag && <Button icon="close" onClick={() => setQuery({ tag: null })}>tag {state.tag}</Button>}
    </div>
  );
}

function GroupHead({ name, rows }: { name: string; rows: readonly JobRow[] }) {
  const running = rows.filter((row) => row.status === "Running").length;
  const failed = rows.filter((row) => row.status === "Failed").length;
  return (
    <span class="group-head">
      <a href={`?${new URLSearchParams({ experiment: name })}`}>{name}</a>
      <span class="dim">{plural(rows.length, "job")}</span>
      {running > 0 && <span class="status-blue">{running} running</span>}
      {failed > 0 && <span class="status-red">{failed} failed</span>}
    </span>
  );
}

function NoJobs({ state }: { state: ListState }) {
  const isFiltered = state.text || state.status || state.experiment || state.owner || state.tag || state.archived;
  if (isFiltered) {
    return <Empty title={state.archived ? "No archived jobs" : "No job fits"}><a class="link" href={location.pathname}>Show all jobs</a></Empty>;
  }
  return (
    <Empty title="No jobs yet" command="yard job create -f job.yml --web">
      Submit one: it appears here at once, with its logs, its metrics and the reason when it waits.
    </Empty>
  );
}

/** A small chart of the first metric of each row, all in one request. */
function useSparks(rows: readonly JobRow[], columns: readonly string[], isLive: boolean): ReadonlyMap<string, ChartData> {
  const workspace = useWorkspace();
  const metric = columns.find((name) => name.startsWith("metrics."));
  const key = metric ? splitColumn(metric)[1] : "";
  const jobs = rows.filter((row) => row.metrics?.[key] !== undefined).slice(0, 100).map((row) => row.name);
  const url = key && jobs.length ? api(workspace, ["metrics", "chart"], { job: jobs, key, width: 32 }) : null;
  const { data, reload } = useLoad(url, (signal) => get<Page<ChartData>>(url as string, signal));
  const again = useThrottled(reload, 3000);
  useEvent("metrics", () => { if (isLive) again(); });
  const kept = data?.value;
  return useMemo(() => new Map((kept ?? []).map((chart) => [chart.job ?? "", chart])), [kept]);
}
