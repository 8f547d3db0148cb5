/** The steps of a pipeline: a graph of them, one that is chosen, and a table of all. */
import { useMemo, useState } from "preact/hooks";
import { api, get } from "../../api/client";
import type { Job } from "../../api/model";
import { Button } from "../../components/Button";
import { Duration } from "../../components/Duration";
import { Empty, ErrorNote, Loading } from "../../components/Empty";
import { Panel } from "../../components/Panel";
import { type Column, type Sort, Table } from "../../components/Table";
import { jobHref } from "../../lib/address";
import { count } from "../../lib/format";
import { useLoad, useThrottled } from "../../lib/query";
import { setQuery, useAddress } from "../../lib/router";
import { useEvent, useWorkspace } from "../../lib/session";
import { StepGraph } from "./StepGraph";
import { StepPanel, StepStatus } from "./StepPanel";
import { type Explanations, ordered, type Step, type Steps } from "./steps";

const LISTED_AT_ONCE = 300;

export function StepsTab({ job }: { job: Job }) {
  const workspace = useWorkspace();
  const { query } = useAddress();
  const selected = query.get("step") ?? "";
  const url = api(workspace, ["pipelines", job.name, "steps"]);
  const { data, error, reload } = useLoad(url, (signal) => get<Steps>(url, signal));
  const whyUrl = selected ? api(workspace, ["explanations", job.name]) : null;
  const why = useLoad(whyUrl, (signal) => get<Explanations>(whyUrl as string, signal));
  const jobs = useMemo(() => new Set([job.name, ...(data?.steps ?? []).map((step) => step.job)]), [job.name, data]);
  const again = useThrottled(reload, 1000);
  const whyAgain = useThrottled(why.reload, 3000);
  useEvent("job", (event) => {
    if (jobs.has(event.name)) again();
    if (event.name === job.name) whyAgain();
  });
  useEvent("refresh", () => {
    again();
    whyAgain();
  });
  if (!data) return error ? <ErrorNote error={error} /> : <Loading label="Loading the steps" />;
  if (!data.steps.length) return <Empty title="No steps" />;
  const step = data.steps.find((each) => each.name === selected);
  const select = (name: string): void => setQuery({ step: name }, false);
  return (
    <div class="pipeline">
      {error && <ErrorNote error={error} />}
      <div class={step ? "pipeline-view has-step" : "pipeline-view"}>
        <StepGraph name={job.name} steps={data.steps} selected={step ? selected : ""} onSelect={select} />
        {step && <StepPanel step={step} steps={data.steps} explanation={why.data?.value.find((each) => each.step === step.name)} workspace={workspace} hrefOf={hrefOf} onClose={() => select("")} />}
      </div>
      <AllSteps steps={data.steps} selected={selected} workspace={workspace} />
    </div>
  );
}

function hrefOf(step: string): string {
  return `?${new URLSearchParams({ step })}`;
}

function AllSteps({ steps, selected, workspace }: { steps: readonly Step[]; selected: string; workspace: string }) {
  const [sort, setSort] = useState<Sort | null>(null);
  const [most, setMost] = useState(LISTED_AT_ONCE);
  const rows = useMemo(() => ordered(steps, sort?.by ?? "number", sort?.descending ?? false), [steps, sort]);
  const columns = useMemo(() => columnsOf(workspace, steps), [workspace, steps]);
  return (
    <Panel flush title="Steps">
      <Table<Step> label="Steps" columns={columns} rows={rows.slice(0, most)} keyOf={(step) => step.name} sort={sort} onSort={setSort} rowClass={(step) => (step.name === selected ? "is-selected" : "")} />
      {rows.length > most && <p class="table-foot"><span class="dim">The first {count(most)} of {count(rows.length)}.</span> <Button onClick={() => setMost(most + LISTED_AT_ONCE)}>Show more</Button></p>}
    </Panel>
  );
}

/** Without what no step has. */
function columnsOf(workspace: string, steps: readonly Step[]): Column<Step>[] {
  const columns: Column<Step>[] = [
    { id: "name", head: "Step", sortable: true, cell: (step) => <a class="job-link" href={hrefOf(step.name)}>{step.name}</a> },
    { id: "status", head: "Status", sortable: true, cell: (step) => <StepStatus step={step} /> },
    { id: "duration", head: "Duration", sortable: true, numeric: true, cell: (step) => (step.started_at || step.duration_s != null ? <Duration start={step.started_at} end={step.ended_at} seconds={step.duration_s} /> : "–") },
    { id: "takes", head: "Inputs", cell: (step) => <Takes step={step} /> },
    { id: "job", head: "Job", width: "grow", cell: (step) => (step.status ? <a href={jobHref(workspace, step.job)}>{step.job}</a> : <span class="dim">{step.job ? `${step.job}, deleted` : "–"}</span>) },
    { id: "component", head: "Component", cell: (step) => (step.component ? <span class="mono">{step.component}</span> : <span class="dim">–</span>) },
    { id: "reason", head: "Reason", width: "grow", cell: (step) => <span class="trial-end" title={step.reason}>{step.reason}</span> },
  ];
  return columns.filter(({ id }) => (id !== "component" && id !== "reason") || steps.some((step) => step[id]));
}

function Takes({ step }: { step: Step }) {
  const taken = Object.entries(step.takes);
  if (!taken.length) return <span class="dim">–</span>;
  const text = taken.map(([input, { step: from, output }]) => `${input}: ${from}.${output}`).join(", ");
  return <span class="step-takes" title={text}>{text}</span>;
}
