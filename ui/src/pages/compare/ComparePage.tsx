/** Jobs beside each other: what differs, and their metrics in the same charts. */
import { useMemo, useState } from "preact/hooks";
import { MetricChart, type Source } from "../../charts/MetricChart";
import { api, type ApiError, get } from "../../api/client";
import { type ComparedJob, ENDED, type JobRow, type Page } from "../../api/model";
import { StatusBadge } from "../../components/Badge";
import { Button, Choice } from "../../components/Button";
import { Empty, ErrorNote, Loading } from "../../components/Empty";
import { SearchField } from "../../components/Field";
import { Icon } from "../../components/Icon";
import { Menu } from "../../components/Menu";
import { PageHead, Panel } from "../../components/Panel";
import { Table } from "../../components/Table";
import { href, jobHref } from "../../lib/address";
import { count } from "../../lib/format";
import { useLoad, useThrottled } from "../../lib/query";
import { setQuery, useAddress } from "../../lib/router";
import { useSeen } from "../../lib/seen";
import { useEvent, useFollow, useWorkspace } from "../../lib/session";
import { AxisChoice, readAxis } from "../job/MetricsTab";
import { differences, MOST_JOBS, type Row } from "./differences";
import { Experiment } from "./Experiment";
import { Plots } from "./Plots";
import type { Compared as PlottedJob } from "./scales";

/** How far from the window plots and values are made: below many charts they are seldom looked at. */
const NEAR_PX = 2000;
const CHARTS_AT_ONCE = 48;

export default function ComparePage(_: { names: string[] }) {
  const { query } = useAddress();
  const experiment = query.get("experiment");
  return experiment && !query.has("job") ? <Experiment key={experiment} name={experiment} /> : <CompareJobs />;
}

function CompareJobs() {
  const workspace = useWorkspace();
  const { query } = useAddress();
  const asked = [...new Set(query.getAll("job"))];
  const names = asked.slice(0, MOST_JOBS);
  const url = names.length ? api(workspace, ["metrics", "comparison"], { job: names }) : null;
  const { data, error, reload } = useLoad(url, (signal) => get<{ value: ComparedJob[] }>(url as string, signal));
  const again = useThrottled(reload, 1500);
  useEvent("job", (event) => { if (names.includes(event.name)) again(); });
  useEvent("metrics", (event) => { if (names.includes(event.job)) again(); });
  useEvent("refresh", again);
  useFollow(data?.value.filter((job) => !ENDED.has(job.status)).map((job) => job.name) ?? []);
  return (
    <>
      <PageHead title="Compare" actions={<AddJob names={names} />} />
      {!names.length && <Empty title="Choose jobs to compare" command="yard job metrics JOB JOB --plot loss">Select two or more in the <a class="link" href={href(workspace, "jobs")}>list of jobs</a>, or add them here.</Empty>}
      {!names.length && <Experiments />}
      {error && <ErrorNote error={error as ApiError} />}
      {names.length > 0 && !data && !error && <Loading />}
      {asked.length > MOST_JOBS && <p class="dim">{`The first ${MOST_JOBS} of ${asked.length} jobs are compared.`}</p>}
      {data && <Compared jobs={data.value} />}
    </>
  );
}

interface Props {
  jobs: readonly ComparedJob[];
}

function Compared({ jobs }: Props) {
  const [below, isSeen] = useSeen<HTMLDivElement>(NEAR_PX);
  return (
    <div class="stack">
      <ul class="compared" aria-label="Compared jobs">{jobs.map((job, at) => <Chip key={job.name} job={job} color={at} names={jobs.map((each) => each.name)} />)}</ul>
      <Charts jobs={jobs} />
      <div class="stack" ref={below}>
        {isSeen && <JobPlots jobs={jobs} />}
        {isSeen && <Differences jobs={jobs} />}
      </div>
    </div>
  );
}

function JobPlots({ jobs }: Props) {
  const plotted = useMemo(() => jobs.map((job): PlottedJob => ({
    ...job, display_name: labelOf(job), inputs: literals(job.spec.inputs), metrics: job.values,
  })), [jobs]);
  return <Plots jobs={plotted} />;
}

/** Data is told by its path. */
function literals(inputs: Record<string, unknown> = {}): Record<string, unknown> {
  return Object.fromEntries(Object.entries(inputs).map(([name, value]) => {
    const mapping = value as { path?: unknown; value?: unknown } | null;
    return [name, mapping && typeof mapping === "object" ? (mapping.path ?? mapping.value) : value];
  }));
}

function Chip({ job, color, names }: { job: ComparedJob; color: number; names: readonly string[] }) {
  const workspace = useWorkspace();
  return (
    <li class="compared-job">
      <span class={`legend-color series-${(color % 8) + 1}`} aria-hidden="true" />
      <a href={jobHref(workspace, job.name)}>{labelOf(job)}</a>
      <StatusBadge status={job.status} />
      <button type="button" aria-label={`Leave out ${job.name}`} onClick={() => setQuery({ job: names.filter((name) => name !== job.name) }, false)}><Icon name="close" size={14} /></button>
    </li>
  );
}

function labelOf(job: ComparedJob): string {
  return job.display_name === job.name ? job.name : `${job.display_name} (${job.name})`;
}

function Charts({ jobs }: Props) {
  const workspace = useWorkspace();
  const { query } = useAddress();
  const axis = readAxis(query);
  const text = query.get("metric") ?? "";
  const [most, setMost] = useState(CHARTS_AT_ONCE);
  // Those that most jobs have come first: they are what can be compared.
  const ordered = useMemo(() => {
    const metrics = new Map<string, { key: string; lines: { job: ComparedJob; color: number }[] }>();
    jobs.forEach((job, color) => {
      const line = { job, color };
      for (const key of Object.keys(job.values)) {
        const metric = metrics.get(key);
        if (metric) metric.lines.push(line);
        else metrics.set(key, { key, lines: [line] });
      }
    });
    return [...metrics.values()].sort((a, b) => b.lines.length - a.lines.length || a.key.localeCompare(b.key));
  }, [jobs]);
  if (!ordered.length) return null;
  const found = ordered.filter(({ key }) => key.toLowerCase().includes(text.toLowerCase()));
  const sources = ({ key, lines }: (typeof ordered)[number]): Source[] => lines.map(({ job, color }) =>
    ({ job: job.name, key, label: labelOf(job), color, start: Date.parse(job.started_at ?? job.created_at), href: jobHref(workspace, job.name) }));
  return (
    <section aria-label="Metrics">
      <div class="toolbar metric-bar">
        <SearchField label="Search metrics" value={text} onInput={(value) => setQuery({ metric: value })} />
        <AxisChoice axis={axis} />
      </div>
      <div class="metric-grid">{found.slice(0, most).map((metric) => <MetricChart key={metric.key} title={metric.key} sources={() => sources(metric)} axis={axis} sync="compare" />)}</div>
      {!found.length && <Empty title="No metric fits" />}
      {found.length > most && <p class="list-more"><span class="dim">{`The first ${count(most)} of ${count(found.length)} metrics.`}</span> <Button onClick={() => setMost(most + CHARTS_AT_ONCE)}>Show more</Button></p>}
    </section>
  );
}

function Differences({ jobs }: Props) {
  const { query } = useAddress();
  const all = query.get("all") === "1";
  const known = useMemo(() => differences(jobs), [jobs]);
  const rows = known.filter((row) => all || row.differs);
  return (
    <Panel flush title="Values" aside={<Choice label="Which values" value={all ? "all" : "differ"} options={[["differ", "What differs"], ["all", "All"]]} onChange={(value) => setQuery({ all: value === "all" })} />}>
      {rows.length ? (
        <Table<Row>
          label="Values" rows={rows} keyOf={(row) => `${row.group}/${row.name}`} groupOf={(row) => row.group} groupHead={(group) => group}
          columns={[
            { id: "name", head: "Name", cell: (row) => row.name },
            ...jobs.map((job, at) => ({ id: job.name, head: <span class="clip">{labelOf(job)}</span>, cell: (row: Row) => <span class={`compared-value${row.differs ? " is-different" : ""}`}>{row.values[at] || <span class="dim">–</span>}</span> })),
          ]}
        />
      ) : <Empty title="Nothing differs" />}
    </Panel>
  );
}

/** All jobs of an experiment at once. */
function Experiments() {
  const workspace = useWorkspace();
  const url = api(workspace, ["experiments"]);
  const { data } = useLoad(url, (signal) => get<Page<{ name: string; job_count: number }>>(url, signal));
  const found = data?.value.filter((each) => each.job_count > 1).slice(0, 50) ?? [];
  if (!found.length) return null;
  return (
    <Panel title="All jobs of an experiment">
      <ul class="tags">{found.map((each) => <li key={each.name} class="tag tag-large"><a href={href(workspace, "compare", [], { experiment: each.name })}>{each.name}</a><span class="dim">{each.job_count}</span></li>)}</ul>
    </Panel>
  );
}

function AddJob({ names }: { names: readonly string[] }) {
  return <Menu icon="compare" text="Add a job" label="Add a job">{(close) => <JobChoice names={names} onClose={close} />}</Menu>;
}

function JobChoice({ names, onClose }: { names: readonly string[]; onClose: () => void }) {
  const workspace = useWorkspace();
  const [text, setText] = useState("");
  const url = api(workspace, ["jobs"], { text, limit: 12 });
  const { data } = useLoad(url, (signal) => get<Page<JobRow>>(url, signal));
  const choose = (job: string[]): void => {
    onClose();
    setQuery({ job }, false);
  };
  return (
    <>
      <input class="input" type="search" aria-label="Search jobs" placeholder="Search jobs" value={text} onInput={(event) => setText(event.currentTarget.value)} />
      {data?.value.filter((job) => !names.includes(job.name)).map((job) => (
        <button type="button" key={job.name} class="menu-item" onClick={() => choose([...names, job.name])}>{job.display_name}<span class="dim mono">{job.name}</span></button>
      ))}
      {names.length > 0 && <div class="menu-foot"><Button kind="quiet" onClick={() => choose([])}>Remove all</Button></div>}
    </>
  );
}
