/** All metrics of a job, a chart each; those that ranks logged under their own names share one. */
import { type Axis, MetricChart, type Source } from "../../charts/MetricChart";
import { groupKeys, type Group } from "../../charts/series";
import type { Job } from "../../api/model";
import { api } from "../../api/client";
import { Button, Choice } from "../../components/Button";
import { Empty } from "../../components/Empty";
import { SearchField } from "../../components/Field";
import { setQuery, useAddress } from "../../lib/router";
import { useWorkspace } from "../../lib/session";

export function sourcesOf(job: Job, group: Group): Source[] {
  const start = Date.parse(job.started_at ?? job.created_at);
  return group.keys.map(({ key, label }, color) => ({ job: job.name, key, label, color, start }));
}

/** How the axes are chosen in the address; charts of several jobs read the same. */
export function readAxis(query: URLSearchParams): Axis {
  const smoothing = Number(query.get("smooth"));
  return { x: query.get("x") === "time" ? "time" : "step", log: query.get("log") === "1", smoothing: smoothing > 0 && smoothing < 1 ? smoothing : 0 };
}

export function AxisChoice({ axis }: { axis: Axis }) {
  return (
    <>
      <Choice label="Horizontal axis" value={axis.x} options={[["step", "Step"], ["time", "Time"]]} onChange={(x) => setQuery({ x: x === "step" ? null : x })} />
      <Choice label="Vertical axis" value={axis.log ? "log" : "linear"} options={[["linear", "Linear"], ["log", "Log"]]} onChange={(scale) => setQuery({ log: scale === "log" })} />
      <label class="slider">Smoothing
        <input type="range" min="0" max="0.98" step="0.02" value={axis.smoothing} aria-valuetext={axis.smoothing ? String(axis.smoothing) : "none"} onInput={(event) => setQuery({ smooth: Number(event.currentTarget.value) || null })} />
        <span class="number">{axis.smoothing ? axis.smoothing.toFixed(2) : "off"}</span>
      </label>
    </>
  );
}

export function MetricsTab({ job }: { job: Job }) {
  const workspace = useWorkspace();
  const { query } = useAddress();
  const axis = readAxis(query);
  const text = query.get("metric") ?? "";
  const keys = Object.keys(job.metrics);
  const groups = groupKeys(keys).filter((group) => group.title.toLowerCase().includes(text.toLowerCase()));
  if (!keys.length) {
    return <Empty title="No metrics" command={'mlflow.log_metric("loss", loss, step=step)'}>What the script logs appears here while it runs.</Empty>;
  }
  return (
    <>
      <div class="toolbar metric-bar">
        <SearchField label="Search metrics" value={text} onInput={(value) => setQuery({ metric: value })} />
        <AxisChoice axis={axis} />
        <Button icon="download" download={`${job.name}.csv`} href={api(workspace, ["jobs", job.name, "metrics", "export"], { format: "csv", key: keys.length < 200 ? keys : [] })}>CSV</Button>
      </div>
      <div class="metric-grid">
        {groups.map((group) => (
          <MetricChart key={group.title} title={group.title} sources={() => sourcesOf(job, group)} sync={`${job.name}/metrics`} axis={axis} />
        ))}
      </div>
      {!groups.length && <Empty title="No metric fits" />}
    </>
  );
}
