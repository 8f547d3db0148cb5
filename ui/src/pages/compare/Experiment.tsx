/** All jobs of an experiment in the plots, to find those that are worth a closer look. */
import { api, get } from "../../api/client";
import type { JobRow, Page } from "../../api/model";
import { Button } from "../../components/Button";
import { Empty, ErrorNote, Loading } from "../../components/Empty";
import { PageHead } from "../../components/Panel";
import { href } from "../../lib/address";
import { plural } from "../../lib/format";
import { useLoad, useThrottled } from "../../lib/query";
import { useEvent, useWorkspace } from "../../lib/session";
import { Plots } from "./Plots";

/** As many as a list with columns gives at once; so many requests at most. */
const [AT_ONCE, MOST_READS] = [100, 5];

export function Experiment({ name }: { name: string }) {
  const workspace = useWorkspace();
  const { data, error, reload } = useLoad(`experiment/${workspace}/${name}`, (signal) => read(workspace, name, signal));
  const again = useThrottled(reload, 3000);
  useEvent("job", (event) => { if (!event.job || event.job.experiment_name === name) again(); });
  useEvent("refresh", again);
  return (
    <>
      <PageHead
        title={name} above={<><a href={href(workspace, "compare")}>Compare</a> / all jobs of</>}
        beside={data && <span class="dim">{plural(data.value.length, "job")}{data.next ? ", the newest" : ""}</span>}
        actions={<Button icon="jobs" href={href(workspace, "jobs", [], { experiment: name })}>List of jobs</Button>}
      />
      {error && <ErrorNote error={error} />}
      {!data && !error && <Loading />}
      {data && data.value.length < 2 && <Empty title="There is nothing to compare yet" command={`yard job create --file job.yml --set experiment_name=${/^[\w.-]+$/.test(name) ? name : "NAME"}`}>Two jobs are needed, with inputs, parameters or metrics.</Empty>}
      {data && <Plots jobs={data.value} listed />}
    </>
  );
}

async function read(workspace: string, name: string, signal: AbortSignal): Promise<Page<JobRow>> {
  const value: JobRow[] = [];
  let next: Page<JobRow>["next"] = null;
  for (let count = 0; count < MOST_READS; count += 1) {
    const query = { experiment_name: name, column: ["metrics", "params", "inputs"], limit: AT_ONCE, before: next };
    const page: Page<JobRow> = await get(api(workspace, ["jobs"], query), signal);
    value.push(...page.value);
    next = page.next ?? null;
    if (next === null) break;
  }
  return { value, next };
}
