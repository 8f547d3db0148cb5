/** Runs that this job started. */
import { api, get } from "../../api/client";
import type { Job, JobRow, Page } from "../../api/model";
import { Empty, ErrorNote, Loading } from "../../components/Empty";
import { Table } from "../../components/Table";
import { useLoad, useThrottled } from "../../lib/query";
import { useEvent, useWorkspace } from "../../lib/session";
import { jobColumns } from "../jobs/columns";
import { usualColumns } from "../jobs/listState";

export function ChildrenTab({ job }: { job: Job }) {
  const workspace = useWorkspace();
  const url = api(workspace, ["jobs"], { parent: job.name, limit: 100, column: ["metrics", "params"] });
  const { data, error, reload } = useLoad(url, (signal) => get<Page<JobRow>>(url, signal));
  const again = useThrottled(reload, 1500);
  useEvent("job", again);
  useEvent("refresh", again);
  if (error) return <ErrorNote error={error} />;
  if (!data) return <Loading />;
  if (!data.value.length) return <Empty title="No child runs" command="mlflow.start_run(nested=True)">Runs that the script starts inside the job appear here.</Empty>;
  return <Table label="Child runs" columns={jobColumns(workspace, usualColumns(data.value), new Map())} rows={data.value} keyOf={(row) => row.name} />;
}
