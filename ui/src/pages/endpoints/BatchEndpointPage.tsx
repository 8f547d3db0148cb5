/** One batch endpoint: what scores behind it, and the jobs of its invocations. */
import { api, get } from "../../api/client";
import type { JobRow, Page } from "../../api/model";
import { Badge } from "../../components/Badge";
import { Ago } from "../../components/Duration";
import { Empty, ErrorNote, Loading } from "../../components/Empty";
import { Facts, PageHead, Panel } from "../../components/Panel";
import { type Column, Table } from "../../components/Table";
import { href } from "../../lib/address";
import { plural } from "../../lib/format";
import { useLoad, useThrottled } from "../../lib/query";
import { useEvent, useWorkspace } from "../../lib/session";
import { ComputeLink, JobsOf } from "../compute/tables";
import { jobColumns } from "../jobs/columns";
import { usualColumns } from "../jobs/listState";
import { type BatchDeployment, type BatchEndpoint, computeName } from "./endpoints";
import { ModelLink } from "./ModelLink";

export function BatchEndpointPage({ name }: { name: string }) {
  const workspace = useWorkspace();
  const path = ["batch-endpoints", name];
  const url = api(workspace, path);
  const deploymentsUrl = api(workspace, [...path, "deployments"]);
  const jobsUrl = api(workspace, [...path, "jobs"]);
  const { data: endpoint, error, reload } = useLoad(url, (signal) => get<BatchEndpoint>(url, signal));
  const deployments = useLoad(endpoint ? deploymentsUrl : null, (signal) => get<Page<BatchDeployment>>(deploymentsUrl, signal));
  const jobs = useLoad(endpoint ? jobsUrl : null, (signal) => get<Page<JobRow>>(jobsUrl, signal));
  const again = useThrottled(() => { reload(); deployments.reload(); jobs.reload(); }, 1000);
  useEvent("job", again);
  useEvent("refresh", again);
  if (!endpoint) return error ? <ErrorNote error={error} /> : <Loading label="Loading the endpoint" />;
  const failure = deployments.error ?? jobs.error;
  return (
    <>
      <PageHead title={endpoint.name} above={<a href={href(workspace, "endpoints")}>Endpoints</a>} beside={<Badge tone="grey">batch</Badge>} />
      {failure && <ErrorNote error={failure} />}
      <div class="overview">
        <div class="overview-main">
          {deployments.data ? <Deployments endpoint={endpoint} rows={deployments.data.value} /> : <Loading />}
          {jobs.data && <Jobs endpoint={endpoint} rows={jobs.data.value} />}
        </div>
        <div class="overview-side"><About endpoint={endpoint} /></div>
      </div>
    </>
  );
}

function Deployments({ endpoint, rows }: { endpoint: BatchEndpoint; rows: readonly BatchDeployment[] }) {
  if (!rows.length) {
    return <Panel title="Deployments"><Empty title="Nothing scores here yet" command={`yard batch-deployment create -f deployment.yml --endpoint-name ${endpoint.name}`} /></Panel>;
  }
  const columns: Column<BatchDeployment>[] = [
    { id: "name", head: "Deployment", width: "grow", cell: (row) => (
      <><span class="strong">{row.name}</span> {row.name === endpoint.defaults.deployment_name && <Badge tone="green">default</Badge>}</>
    ) },
    { id: "model", head: "Model", cell: (row) => <ModelLink model={row.model} /> },
    { id: "compute", head: "Compute", cell: (row) => <ComputeLink name={computeName(row.compute)} /> },
    { id: "nodes", head: "Nodes", numeric: true, cell: (row) => row.resources.instance_count },
    { id: "batch", head: "Files a mini-batch", numeric: true, cell: (row) => row.settings.mini_batch_size },
    { id: "changed", head: "Changed", numeric: true, cell: (row) => <span class="dim"><Ago at={row.changed_at} /></span> },
  ];
  return <Panel title="Deployments" flush><Table label="Deployments" columns={columns} rows={rows} keyOf={(row) => row.name} /></Panel>;
}

function Jobs({ endpoint, rows }: { endpoint: BatchEndpoint; rows: readonly JobRow[] }) {
  const workspace = useWorkspace();
  if (!rows.length) {
    return <Panel title="Jobs"><Empty title="Not invoked yet" command={`yard batch-endpoint invoke -n ${endpoint.name} --input ./data`} /></Panel>;
  }
  return (
    <Panel title="Jobs" flush aside={<span class="dim">{plural(rows.length, "job")}</span>}>
      <Table label="Jobs" columns={jobColumns(workspace, usualColumns(rows), new Map())} rows={rows} keyOf={(row) => row.name} />
    </Panel>
  );
}

function About({ endpoint }: { endpoint: BatchEndpoint }) {
  return (
    <Panel title="About">
      <Facts rows={[
        ["Description", endpoint.description],
        ["Default", endpoint.defaults.deployment_name],
        ["Owner", <JobsOf owner={endpoint.owner} />],
        ["Created", <Ago at={endpoint.created_at} />],
      ]} />
    </Panel>
  );
}
