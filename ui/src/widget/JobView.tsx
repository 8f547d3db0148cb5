/** One job, small enough for a cell: status, stages, charts, the end of its log, its error.
 *
 * Always: what the kernel sent is text here, and links lead to HTTP addresses only.
 */
import { useEffect, useMemo, useRef } from "preact/hooks";
import { Chart } from "../charts/Chart";
import { groupKeys, pointsOf } from "../charts/series";
import { StatusBadge } from "../components/Badge";
import { Duration } from "../components/Duration";
import { plural } from "../lib/format";
import { pieces } from "../logs/ansi";
import { Stages } from "../pages/job/Stages";
import type { Charts, Log, Model, ViewedJob } from "./state";

export function JobView({ model }: { model: Model }) {
  const job = model.get("job");
  const note = model.get("note");
  return (
    <section class="run" aria-label={`Job ${job.display_name || job.name}`}>
      <Head job={job} />
      {note && <p class="run-note" role="status">{note}</p>}
      <Failure job={job} />
      <Stages job={job} />
      <Metrics job={job} charts={model.get("charts")} />
      <LogTail log={model.get("log")} />
    </section>
  );
}

function Head({ job }: { job: ViewedJob }) {
  const ranks = job.node_count * job.processes_per_node;
  const title = job.display_name || job.name;
  return (
    <header class="run-head">
      <StatusBadge status={job.status} />
      <h3>{/^https?:\/\//.test(job.page) ? <a href={job.page} target="_blank" rel="noopener noreferrer">{title}</a> : title}</h3>
      <p class="run-facts">
        {title !== job.name && <span class="mono">{job.name}</span>}
        <span>{job.experiment_name}</span>
        {job.compute && <span>{job.compute}</span>}
        <span>{plural(job.node_count, "node")}, {plural(ranks, "rank")}</span>
        {job.started_at && <Duration start={job.started_at} end={job.ended_at} seconds={job.duration_s} />}
      </p>
      {job.waiting && <p class="run-waiting">{job.waiting}</p>}
    </header>
  );
}

function Failure({ job }: { job: ViewedJob }) {
  const { error } = job;
  if (!error) return null;
  return (
    <div class="run-error" role="alert">
      <p>{error.message}</p>
      {error.hint && <p class="run-hint">{error.hint}</p>}
    </div>
  );
}

function Metrics({ job, charts }: { job: ViewedJob; charts: Charts }) {
  const found = useMemo(() => {
    const byKey = new Map(charts.lines.map((line) => [line.key, line]));
    return groupKeys([...byKey.keys()]).map(({ title, keys }) => ({
      title,
      lines: keys.flatMap(({ key, label }, color) => {
        const line = byKey.get(key);
        return line ? [{ id: key, label, points: pointsOf(line), color }] : [];
      }),
    }));
  }, [charts]);
  return (
    <>
      <div class="metric-grid">
        {found.map(({ title, lines }) => (
          <section class="metric" key={title} aria-label={title}>
            <div class="metric-head"><h3>{title}</h3></div>
            <Chart title={title} lines={lines} height={150} sync={job.name} />
          </section>
        ))}
      </div>
      {charts.left_out > 0 && <p class="run-facts">{plural(charts.left_out, "more metric")} on the job's page.</p>}
    </>
  );
}

function LogTail({ log }: { log: Log }) {
  const box = useRef<HTMLPreElement>(null);
  const isAtEnd = useRef(true);
  useEffect(() => {
    const element = box.current;
    if (element && isAtEnd.current) element.scrollTop = element.scrollHeight;
  }, [log]);
  if (!log.lines.length) return null;
  const follow = (): void => {
    const element = box.current;
    if (element) isAtEnd.current = element.scrollHeight - element.scrollTop - element.clientHeight < 24;
  };
  return (
    <pre class="run-log" ref={box} tabIndex={0} aria-label={log.path} onScroll={follow}>
      {log.is_cut && <span class="run-cut">{log.path}, its last {log.lines.length} lines{"\n"}</span>}
      {log.lines.map((line, at) => <div key={at}>{pieces(line).map((piece, place) => <span key={place} class={piece.look}>{piece.text}</span>)}{"\n"}</div>)}
    </pre>
  );
}
