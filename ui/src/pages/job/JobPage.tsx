/** One job: how it goes, what it prints and learns, what it is made of, what can be done with it. */
import { api, get } from "../../api/client";
import { ENDED, type Job } from "../../api/model";
import { Badge, StatusBadge } from "../../components/Badge";
import { ErrorNote, Loading } from "../../components/Empty";
import { Icon } from "../../components/Icon";
import { PageHead } from "../../components/Panel";
import { TabPanel, Tabs } from "../../components/Tabs";
import { href, jobHref } from "../../lib/address";
import { useLoad, useThrottled } from "../../lib/query";
import { setQuery, useAddress } from "../../lib/router";
import { useEvent, useFollow, useWorkspace } from "../../lib/session";
import { JobActions } from "./JobActions";
import { ChildrenTab } from "./ChildrenTab";
import { CodeTab } from "./CodeTab";
import { EnvironmentTab } from "./EnvironmentTab";
import { Failure } from "./Failure";
import { FilesTab } from "./FilesTab";
import { LogsTab } from "./LogsTab";
import { MetricsTab } from "./MetricsTab";
import { Overview } from "./Overview";
import { ResourcesTab } from "./ResourcesTab";
import { Stages } from "./Stages";
import { LineagePanel } from "../lineage/LineagePanel";
import { StepsTab } from "../pipeline/StepsTab";
import { TrialsTab } from "../sweep/TrialsTab";

const TABS = [
  ["overview", "Overview"], ["metrics", "Metrics"], ["logs", "Logs"], ["files", "Files"], ["code", "Code"],
  ["environment", "Environment"], ["resources", "Resources"], ["children", "Child runs"], ["lineage", "Lineage"],
] as const;
/** A sweep runs no script itself: code, environment and metrics are its trials'. */
const SWEEP_TABS = [["trials", "Trials"], ["overview", "Overview"], ["logs", "Logs"], ["files", "Files"], ["lineage", "Lineage"]] as const;
/** Nor does a pipeline. */
const PIPELINE_TABS = [["steps", "Steps"], ["overview", "Overview"], ["logs", "Logs"], ["files", "Files"], ["lineage", "Lineage"]] as const;
type TabId = (typeof TABS | typeof SWEEP_TABS | typeof PIPELINE_TABS)[number][0];

function tabsOf(job: Job): readonly (readonly [TabId, string])[] {
  if (job.type === "pipeline") return PIPELINE_TABS;
  return job.type === "sweep" ? SWEEP_TABS : TABS;
}

export default function JobPage({ names }: { names: string[] }) {
  const workspace = useWorkspace();
  const [name = ""] = names;
  const { query } = useAddress();
  const url = api(workspace, ["jobs", name]);
  const { data: job, error, reload } = useLoad(url, (signal) => get<Job>(url, signal));
  const again = useThrottled(reload, 400);
  const later = useThrottled(reload, 2500);
  useEvent("job", (event) => { if (event.name === name) again(); });
  useEvent("metrics", (event) => { if (event.job === name) later(); });
  useEvent("refresh", again);
  useFollow([name]);

  if (!job) return error ? <ErrorNote error={error} /> : <Loading label="Loading the job" />;
  const tabs = tabsOf(job);
  const first = tabs[0]?.[0] ?? "overview";
  const chosen = tabs.find(([id]) => id === query.get("tab"))?.[0] ?? first;
  const metrics = Object.keys(job.metrics).length;
  const notes: Partial<Record<TabId, number>> = metrics ? { metrics } : {};
  return (
    <>
      <PageHead
        title={job.display_name || job.name}
        above={<Above job={job} workspace={workspace} />}
        beside={<>
          <StatusBadge status={job.status} />
          {job.archived && <Badge tone="grey">Archived</Badge>}
          {job.attempt > 1 && <Badge tone="amber">Attempt {job.attempt}</Badge>}
        </>}
        actions={<JobActions job={job} onChange={reload} />}
      />
      <Failure job={job} brief={chosen !== first} />
      <Waiting job={job} />
      {job.type !== "sweep" && job.type !== "pipeline" && <Stages job={job} />}
      <Tabs
        label="Parts of the job" chosen={chosen}
        tabs={tabs.map(([id, label]) => ({ id, label, note: notes[id] }))}
        onChoose={(tab) => setQuery({ tab: tab === first ? null : tab, path: null, output: null, part: null, filter: null, format: null, step: null }, false)}
      />
      <TabPanel id={chosen}><Part tab={chosen} job={job} /></TabPanel>
    </>
  );
}

function Part({ tab, job }: { tab: TabId; job: Job }) {
  switch (tab) {
    case "steps": return <StepsTab job={job} />;
    case "trials": return <TrialsTab job={job} />;
    case "metrics": return <MetricsTab job={job} />;
    case "logs": return <LogsTab job={job} />;
    case "files": return <FilesTab job={job} />;
    case "code": return <CodeTab job={job} />;
    case "environment": return <EnvironmentTab job={job} />;
    case "resources": return <ResourcesTab job={job} />;
    case "children": return <ChildrenTab job={job} />;
    case "lineage": return <LineagePanel of={["jobs", job.name]} origin="No data leads to it." />;
    default: return <Overview job={job} />;
  }
}

function Above({ job, workspace }: { job: Job; workspace: string }) {
  return (
    <>
      <a href={href(workspace, "jobs", [], { experiment: job.experiment_name })}>{job.experiment_name}</a>
      {job.parent && <> / <a href={jobHref(workspace, job.parent)}>{job.parent}</a></>}
      {" / "}<span class="mono">{job.name}</span>
    </>
  );
}

/** Why it waits. */
function Waiting({ job }: { job: Job }) {
  if (job.error || !job.waiting || ENDED.has(job.status)) return null;
  return <div class="note note-amber waiting"><Icon name="clock" /><div><p>{job.waiting}</p></div></div>;
}
