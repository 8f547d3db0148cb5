/** What the job's nodes and ranks use over time, a chart for each kind of figure, live. */
import { MetricChart } from "../../charts/MetricChart";
import { api, get } from "../../api/client";
import { ENDED, type Job, type Page } from "../../api/model";
import { Button } from "../../components/Button";
import { Empty, ErrorNote, Loading } from "../../components/Empty";
import { useLoad, useThrottled } from "../../lib/query";
import { useEvent, useWorkspace } from "../../lib/session";
import { resourceCharts } from "./resources";

const AXIS = { x: "time", log: false, smoothing: 0 } as const;

export function ResourcesTab({ job }: { job: Job }) {
  const workspace = useWorkspace();
  const url = api(workspace, ["jobs", job.name, "metrics"], { system: "only" });
  const { data, error, reload } = useLoad(url, (signal) => get<Page<{ key: string }>>(url, signal));
  const sampled = (data?.value ?? []).map((metric) => metric.key);
  const again = useThrottled(reload, 2500);
  useEvent("metrics", (event) => {
    // Charts read their own points; a key that is new needs a chart.
    if (event.job === job.name && event.metrics.some(({ key }) => key.startsWith("system/") && !sampled.includes(key) && !(key in job.metrics))) again();
  });
  useEvent("refresh", again);

  if (!data) return error ? <ErrorNote error={error} /> : <Loading label="Loading what the job uses" />;
  if (!sampled.length) {
    return ENDED.has(job.status)
      ? <Empty title="No figures">The job ended before the first sample, or its file says `system_metrics: false`.</Empty>
      : <Empty title="No figures yet" command={`yard job top ${job.name}`}>CPU, memory, GPU, disk and network of each node and rank appear here while the job runs.</Empty>;
  }
  const start = Date.parse(job.started_at ?? job.created_at);
  return (
    <>
      <div class="toolbar metric-bar">
        <Button icon="download" download={`${job.name}-resources.csv`} href={api(workspace, ["jobs", job.name, "metrics", "export"], { format: "csv", key: sampled.slice(0, 200) })}>CSV</Button>
      </div>
      <div class="metric-grid">
        {resourceCharts(sampled).map((chart) => (
          <MetricChart
            key={chart.title} title={chart.title} sync={`${job.name}/resources`} axis={AXIS} sayY={chart.say}
            sources={() => chart.keys.map(({ key, label }, color) => ({ job: job.name, key, label, color, start }))}
          />
        ))}
      </div>
    </>
  );
}
