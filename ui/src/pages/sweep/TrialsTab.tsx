/** The trials of a sweep: the best so far, how it went, what mattered, and all of them. */
import { useState } from "preact/hooks";
import { api, get } from "../../api/client";
import { ENDED, type Job } from "../../api/model";
import { Chart, type ChartLine } from "../../charts/Chart";
import { StatusBadge } from "../../components/Badge";
import { Button } from "../../components/Button";
import { Duration } from "../../components/Duration";
import { Empty, ErrorNote, Loading } from "../../components/Empty";
import { Facts, Panel } from "../../components/Panel";
import { type Column, type Sort, Table } from "../../components/Table";
import { jobHref } from "../../lib/address";
import { number } from "../../lib/format";
import { useLoad, useThrottled } from "../../lib/query";
import { useEvent, useWorkspace } from "../../lib/session";
import { Plots } from "../compare/Plots";
import { RungsPanel } from "./RungsPanel";
import { hasRungs } from "./rungs";
import { comparedOf, historyOf, ordered, sayParameter, sayProgress, type Sweep, type Trial, whichOf } from "./trials";

const MOST_LISTED = 500;

export function TrialsTab({ job }: { job: Job }) {
  const workspace = useWorkspace();
  const url = api(workspace, ["sweeps", job.name, "trials"]);
  const { data, error, reload } = useLoad(url, (signal) => get<Sweep>(url, signal));
  const again = useThrottled(reload, 1500);
  useEvent("job", again);
  useEvent("refresh", again);
  if (error) return <ErrorNote error={error} />;
  if (!data) return <Loading label="Loading the trials" />;
  if (!data.trials.length) return <Empty title="No trials yet">{job.waiting || "The first one is about to start."}</Empty>;
  return (
    <div class="trials">
      <BestSoFar sweep={data} workspace={workspace} />
      <Progress sweep={data} />
      {hasRungs(data.early_termination) && <RungsPanel sweep={data} />}
      <Plots jobs={comparedOf(data)} />
      {ENDED.has(job.status) && <Importances job={job} />}
      <AllTrials sweep={data} workspace={workspace} />
    </div>
  );
}

function BestSoFar({ sweep, workspace }: { sweep: Sweep; workspace: string }) {
  const best = sweep.trials.find((trial) => trial.name === sweep.best);
  const rows = best && [
    ["Trial", <a key="trial" href={jobHref(workspace, best.name)}>{best.name}</a>] as const,
    ...sweep.objectives.map(({ primary_metric, goal }, at) => [`${whichOf(sweep)} ${primary_metric}`, `${number(best.values[at])}, to ${goal}`] as const),
    ...Object.entries(best.parameters).map(([name, value]) => [name, <span key={name} class="mono">{sayCell(value)}</span>] as const),
  ];
  return (
    <Panel title="Best so far" aside={<span class="dim">{sayProgress(sweep)}</span>}>
      {rows ? <Facts rows={rows} /> : <p class="dim">No trial has logged <code>{sweep.objectives[0]?.primary_metric}</code> yet.</p>}
    </Panel>
  );
}

function Progress({ sweep }: { sweep: Sweep }) {
  const history = historyOf(sweep);
  const metric = sweep.objectives[0]?.primary_metric ?? "";
  if (!history || history.values.xs.length < 2) return null;
  const lines: ChartLine[] = [
    { id: "best", label: "best so far", points: history.best, color: 0 },
    { id: "value", label: "of the trial", points: history.values, color: 1 },
  ];
  return (
    <Panel title={metric}>
      <Chart title={`${metric} over the trials`} lines={lines} sayX={String} />
    </Panel>
  );
}

interface Importance { value: Record<string, number>; missing: string }

function Importances({ job }: { job: Job }) {
  const workspace = useWorkspace();
  const url = api(workspace, ["sweeps", job.name, "importances"]);
  const { data } = useLoad(url, (signal) => get<Importance>(url, signal));
  if (!data) return null;
  const rows = Object.entries(data.value).sort(([, a], [, b]) => b - a);
  return (
    <Panel title="What mattered">
      {rows.length ? (
        <Facts rows={rows.map(([name, share]) => [name, <Share key={name} name={name} share={share} />] as const)} />
      ) : <p class="dim">{data.missing}</p>}
    </Panel>
  );
}

function Share({ name, share }: { name: string; share: number }) {
  return <span class="share"><meter min={0} max={1} value={share} aria-label={`Importance of ${name}`} /> {(100 * share).toFixed(0)} %</span>;
}

function AllTrials({ sweep, workspace }: { sweep: Sweep; workspace: string }) {
  const [sort, setSort] = useState<Sort | null>(null);
  const rows = ordered(sweep.trials, sort?.by ?? "number", sort ? sort.descending : true);
  return (
    <Panel flush title="Trials" aside={<Button icon="download" download={`${sweep.name}.csv`} href={api(workspace, ["sweeps", sweep.name, "trials.csv"])}>CSV</Button>}>
      <Table<Trial> label="Trials" columns={columnsOf(sweep, workspace)} rows={rows.slice(0, MOST_LISTED)} keyOf={(trial) => trial.name} sort={sort} onSort={setSort} rowClass={(trial) => (trial.name === sweep.best ? "is-selected" : "")} />
      {rows.length > MOST_LISTED && <p class="dim table-foot">The first {MOST_LISTED} of {rows.length}; the CSV has all.</p>}
    </Panel>
  );
}

function columnsOf(sweep: Sweep, workspace: string): Column<Trial>[] {
  const metric = sweep.objectives[0]?.primary_metric ?? "";
  return [
    { id: "number", head: "Trial", sortable: true, cell: (trial) => <a class="job-link" href={jobHref(workspace, trial.name)}>{trial.number}{trial.name === sweep.best && <span class="dim"> best</span>}</a> },
    { id: "status", head: "Status", cell: (trial) => (trial.status ? <StatusBadge status={trial.status} /> : <span class="dim">deleted</span>) },
    { id: "value", head: <span class="clip">{whichOf(sweep)} {metric}</span>, label: `${whichOf(sweep)} ${metric}`, numeric: true, sortable: true, cell: (trial) => (trial.values.length ? number(trial.values[0]) : "–") },
    ...sweep.parameters.map((name) => ({
      id: name, head: <span class="clip">{name}</span>, label: name, numeric: true, sortable: true,
      cell: (trial: Trial) => <span class="clip">{name in trial.parameters ? sayCell(trial.parameters[name]) : "–"}</span>,
    })),
    { id: "duration", head: "Duration", sortable: true, numeric: true, cell: (trial) => <Duration start={trial.started_at} end={trial.ended_at} seconds={trial.duration_s} /> },
    { id: "reason", head: "Ended because", width: "grow", cell: (trial) => <span class="trial-end" title={trial.reason}>{trial.reason}</span> },
  ];
}

function sayCell(value: unknown): string {
  return typeof value === "number" ? number(value) : String(sayParameter(value));
}
