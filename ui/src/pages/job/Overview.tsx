/** A job at a glance: its numbers, what it was given, where it runs. */
import { useState } from "preact/hooks";
import { api, send } from "../../api/client";
import type { Job } from "../../api/model";
import { Button } from "../../components/Button";
import { Copy } from "../../components/Copy";
import { Ago } from "../../components/Duration";
import { Empty } from "../../components/Empty";
import { Icon } from "../../components/Icon";
import { Facts, Panel } from "../../components/Panel";
import { attempt } from "../../components/Toast";
import { MetricChart } from "../../charts/MetricChart";
import { groupKeys } from "../../charts/series";
import { href, jobHref } from "../../lib/address";
import { bytes, number } from "../../lib/format";
import { mayWrite, useSession } from "../../lib/session";
import { sourcesOf } from "./MetricsTab";

const MOST_CHARTS = 4;
const PLAIN = { x: "step", log: false, smoothing: 0 } as const;

export function Overview({ job: asked }: { job: Job }) {
  const job = trialOf(asked);
  const keys = Object.keys(job.metrics);
  const groups = groupKeys(keys).slice(0, MOST_CHARTS);
  return (
    <div class="overview">
      <div class="overview-main">
        {groups.length > 0 ? (
          <div class="metric-grid">
            {groups.map((group) => <MetricChart key={group.title} title={group.title} sources={() => sourcesOf(job, group)} axis={PLAIN} sync={job.name} height={180} />)}
          </div>
        ) : job.type === "sweep" ? <Panel title="Search space"><Values of={job.spec.search_space ?? {}} /></Panel> : job.type === "pipeline" ? <Panel title="Outputs"><Values of={literals(job.spec.outputs)} empty="No outputs" /></Panel> : <Panel title="Metrics"><NoMetrics job={job} /></Panel>}
        {keys.length > 0 && <Panel title="Last values"><Figures of={job.metrics} /></Panel>}
        {job.notices.length > 0 && (
          <Panel title="Notices">
            <ul class="notices">{job.notices.map((notice, at) => <li key={at}><Icon name="info" size={14} /><span>{notice}</span></li>)}</ul>
          </Panel>
        )}
        {job.type !== "pipeline" && <Panel title="Command" aside={<Copy text={String(job.spec.command ?? "")} label="Copy the command" />}>
          <pre class="code-block" tabIndex={0}>{String(job.spec.command ?? "This run was started outside of torchyard's jobs.")}</pre>
        </Panel>}
      </div>
      <div class="overview-side">
        <About job={job} />
        <Panel title="Inputs"><Values of={literals(job.spec.inputs)} empty="No inputs" /></Panel>
        {Object.keys(job.params).length > 0 && <Panel title="Parameters"><Values of={job.params} /></Panel>}
        <Tags key={job.name} job={job} />
      </div>
    </div>
  );
}

/** A sweep with what its trials are made of: command, environment, resources. */
function trialOf(job: Job): Job {
  return job.type === "sweep" ? { ...job, spec: { ...job.spec.trial, ...job.spec } } : job;
}

function NoMetrics({ job }: { job: Job }) {
  return (
    <Empty title={job.status === "Running" ? "No metrics yet" : "No metrics"} command={'mlflow.log_metric("loss", loss, step=step)'}>
      What the script logs appears here while it runs.
    </Empty>
  );
}

function Figures({ of }: { of: Readonly<Record<string, unknown>> }) {
  const entries = Object.entries(of);
  return <dl class="figures">{entries.map(([key, value]) => <div key={key}><dt title={key}>{key}</dt><dd>{number(value)}</dd></div>)}</dl>;
}

function Values({ of, empty = "" }: { of: Readonly<Record<string, unknown>>; empty?: string }) {
  const entries = Object.entries(of);
  if (!entries.length) return <p class="dim">{empty}</p>;
  return <Facts rows={entries.map(([key, value]) => [key, <span class="mono">{typeof value === "number" ? number(value) : typeof value === "object" ? JSON.stringify(value) : String(value)}</span>])} />;
}

/** `{type: uri_folder, path: …}` is told by its path. */
function literals(inputs: Record<string, unknown> = {}): Record<string, unknown> {
  return Object.fromEntries(Object.entries(inputs).map(([key, value]) => {
    const mapping = value as { path?: unknown; value?: unknown } | null;
    return [key, mapping && typeof mapping === "object" ? (mapping.path ?? mapping.value ?? value) : value];
  }));
}

function About({ job }: { job: Job }) {
  const { workspace } = useSession();
  const ranks = job.node_count * job.processes_per_node;
  const cloned = job.properties["torchyard.cloned_from"];
  const resources = job.spec.resources ?? {};
  return (
    <Panel title="About">
      <Facts rows={[
        ["Owner", <a href={href(workspace, "jobs", [], { owner: job.owner })}>{job.owner}</a>],
        ["Created", <Ago at={job.created_at} />],
        ["Compute", job.compute && <a href={href(workspace, "computes", [job.compute])}>{job.compute}</a>],
        ["Size", job.type !== "pipeline" && `${job.node_count} ${job.node_count === 1 ? "node" : "nodes"}, ${ranks} ${ranks === 1 ? "rank" : "ranks"}`],
        ["Instance type", typeof resources.instance_type === "string" && resources.instance_type],
        ["Memory", typeof resources.memory_bytes === "number" && bytes(resources.memory_bytes)],
        ["Environment", job.spec.environment !== undefined && <EnvironmentName job={job} />],
        ["Priority", job.priority !== "medium" && job.priority],
        ["Description", job.description],
        ["Cloned from", cloned && <a href={jobHref(workspace, cloned)}>{cloned}</a>],
        ["Models", job.models.length > 0 && job.models.map((model) => <div key={`${model.name}:${model.version}`}><a href={href(workspace, "models", [model.name, String(model.version)])}>{model.name}:{model.version}</a></div>)],
      ]} />
    </Panel>
  );
}

export function EnvironmentName({ job }: { job: Job }) {
  const { workspace } = useSession();
  const named = /^azureml:([^:@]+)[:@](.+)$/.exec(String(job.spec.environment ?? ""));
  if (!named) return <a href={jobHref(workspace, job.name, { tab: "environment" })}>defined in the job</a>;
  const [, name = "", version = ""] = named;
  return <a href={href(workspace, "environments", [name, version])}>{name}:{version}</a>;
}

function Tags({ job }: { job: Job }) {
  const { workspace, person } = useSession();
  const [text, setText] = useState("");
  const [tags, setTags] = useState(job.tags);
  const change = async (changes: Record<string, string | null>): Promise<void> => {
    const changed = await attempt(send<Job>("PATCH", api(workspace, ["jobs", job.name]), { tags: changes }));
    if (changed) setTags(changed.tags);
  };
  const add = (event: Event): void => {
    event.preventDefault();
    const [key = "", ...rest] = text.split("=");
    if (!key.trim()) return;
    setText("");
    void change({ [key.trim()]: rest.join("=").trim() });
  };
  return (
    <Panel title="Tags">
      <div class="tags">
        {Object.entries(tags).map(([key, value]) => (
          <span class="tag tag-large" key={key}>
            <a href={href(workspace, "jobs", [], { tag: value ? `${key}=${value}` : key })}>{value ? `${key}: ${value}` : key}</a>
            {mayWrite(person) && <button type="button" aria-label={`Remove the tag ${key}`} onClick={() => void change({ [key]: null })}><Icon name="close" size={12} /></button>}
          </span>
        ))}
        {!Object.keys(tags).length && <span class="dim">No tags</span>}
      </div>
      {mayWrite(person) && (
        <form class="tag-form" onSubmit={add}>
          <input class="input" aria-label="New tag" placeholder="team=vision" value={text} onInput={(event) => setText(event.currentTarget.value)} />
          <Button submit disabled={!text.trim()}>Add</Button>
        </form>
      )}
    </Panel>
  );
}
