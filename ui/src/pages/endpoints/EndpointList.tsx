/** All endpoints: how each online one does, which deployments have its traffic; the batch ones. */
import { api, get } from "../../api/client";
import type { Page } from "../../api/model";
import { Badge } from "../../components/Badge";
import { Ago } from "../../components/Duration";
import { Empty, ErrorNote, Loading } from "../../components/Empty";
import { PageHead, Panel } from "../../components/Panel";
import { type Column, Table } from "../../components/Table";
import { href } from "../../lib/address";
import { plural } from "../../lib/format";
import { useLoad, useThrottled } from "../../lib/query";
import { useEvent, useWorkspace } from "../../lib/session";
import { JobsOf } from "../compute/tables";
import { BatchEndpointTable } from "./BatchEndpointTable";
import { type BatchEndpoint, type Endpoint, toneOfState, trafficText } from "./endpoints";

export function EndpointList() {
  const workspace = useWorkspace();
  const url = api(workspace, ["online-endpoints"]);
  const { data, error, loading, reload } = useLoad(url, (signal) => get<Page<Endpoint>>(url, signal));
  const batchUrl = api(workspace, ["batch-endpoints"]);
  const batch = useLoad(batchUrl, (signal) => get<Page<BatchEndpoint>>(batchUrl, signal));
  const again = useThrottled(() => { reload(); batch.reload(); }, 1000);
  useEvent("job", again);
  useEvent("refresh", again);
  const endpoints = data?.value ?? [];
  const batchEndpoints = batch.data?.value ?? [];
  const failure = error ?? batch.error;
  const count = endpoints.length + batchEndpoints.length;
  const columns: Column<Endpoint>[] = [
    { id: "name", head: "Name", width: "grow", cell: (row) => (
      <span class="job-name">
        <span class="job-title"><a class="job-link" href={href(workspace, "endpoints", [row.name])}>{row.name}</a></span>
        {(row.message || row.description) && <span class="job-why dim" title={row.message || row.description}>{row.message || row.description}</span>}
      </span>
    ) },
    { id: "state", head: "State", cell: (row) => <Badge tone={toneOfState(row.provisioning_state)}>{row.provisioning_state}</Badge> },
    { id: "traffic", head: "Traffic", cell: (row) => trafficText(row.traffic) || <span class="dim">none</span> },
    { id: "auth", head: "Signed in by", cell: (row) => row.auth_mode },
    { id: "owner", head: "Owner", cell: (row) => <JobsOf owner={row.owner} /> },
    { id: "changed", head: "Changed", numeric: true, cell: (row) => <span class="dim"><Ago at={row.changed_at} /></span> },
  ];
  return (
    <>
      <PageHead title="Endpoints" beside={count > 0 && <p class="dim counts">{plural(count, "endpoint")}</p>} />
      {failure && <ErrorNote error={failure} />}
      {loading && <Loading label="Loading endpoints" />}
      {data && batch.data && !count && (
        <Empty title="No endpoints yet" command="yard model deploy -n MODEL">
          A registered <a class="link" href={href(workspace, "models")}>model</a> answers requests behind an endpoint.
        </Empty>
      )}
      {endpoints.length > 0 && <Table label="Endpoints" columns={columns} rows={endpoints} keyOf={(row) => row.name} />}
      {batchEndpoints.length > 0 && <Panel title="Batch endpoints" flush><BatchEndpointTable endpoints={batchEndpoints} /></Panel>}
    </>
  );
}
