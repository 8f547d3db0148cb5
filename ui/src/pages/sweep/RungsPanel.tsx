/** The rungs of a sweep by ASHA or Hyperband: who came to which with which value, and went on. */
import { api, get } from "../../api/client";
import { ErrorNote, Loading } from "../../components/Empty";
import { Panel } from "../../components/Panel";
import { type Column, Table } from "../../components/Table";
import { jobHref } from "../../lib/address";
import { number } from "../../lib/format";
import { useLoad, useThrottled } from "../../lib/query";
import { useEvent, useWorkspace } from "../../lib/session";
import { highestFirst, type Rung, rungName, sayDecisions } from "./rungs";
import type { Sweep } from "./trials";

const MOST_LISTED = 500;
const TONES: Record<Rung["decision"], string> = {
  promoted: "status status-green", waiting: "status status-amber", stopped: "status status-grey", ended: "status",
};

export function RungsPanel({ sweep }: { sweep: Sweep }) {
  const workspace = useWorkspace();
  const url = api(workspace, ["sweeps", sweep.name, "rungs"]);
  const { data, error, reload } = useLoad(url, (signal) => get<{ value: Rung[] }>(url, signal));
  const again = useThrottled(reload, 1500);
  useEvent("job", again);
  useEvent("refresh", again);
  if (error) return <ErrorNote error={error} />;
  if (!data) return <Loading label="Loading the rungs" />;
  if (!data.value.length) return <Panel title="Rungs"><p class="dim">No trial has come to a rung yet.</p></Panel>;
  const rungs = highestFirst(data.value);
  const hasBrackets = rungs.some((rung) => rung.bracket > 0);
  return (
    <Panel flush title="Rungs" aside={<span class="dim">{sayDecisions(rungs)}</span>}>
      <Table<Rung>
        label="Rungs" columns={columnsOf(sweep, workspace)} rows={rungs.slice(0, MOST_LISTED)} keyOf={(rung) => `${rung.bracket}/${rung.interval}/${rung.number}`}
        groupOf={(rung) => rungName(rung, hasBrackets)} groupHead={(name, members) => <>{name} <span class="dim">{members[0]?.reached} reached it</span></>}
      />
      {rungs.length > MOST_LISTED && <p class="dim table-foot">The first {MOST_LISTED} of {rungs.length}; <code>yard job trials --rungs</code> lists all.</p>}
    </Panel>
  );
}

function columnsOf(sweep: Sweep, workspace: string): Column<Rung>[] {
  const metric = sweep.objectives[0]?.primary_metric ?? "";
  return [
    { id: "trial", head: "Trial", cell: (rung) => <a class="job-link" href={jobHref(workspace, rung.trial)}>{rung.number}</a> },
    { id: "value", head: <span class="clip">{metric}</span>, label: metric, numeric: true, cell: (rung) => (rung.value === null ? "–" : number(rung.value)) },
    { id: "rank", head: "Rank", numeric: true, cell: (rung) => `${rung.rank} of ${rung.reached}` },
    { id: "decision", head: "Decision", width: "grow", cell: (rung) => <span class={TONES[rung.decision]}>{rung.decision}</span> },
  ];
}
