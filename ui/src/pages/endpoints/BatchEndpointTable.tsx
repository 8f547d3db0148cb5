/** The batch endpoints of a workspace: each leads to its deployments and its jobs. */
import { Ago } from "../../components/Duration";
import { type Column, Table } from "../../components/Table";
import { href } from "../../lib/address";
import { useWorkspace } from "../../lib/session";
import { JobsOf } from "../compute/tables";
import type { BatchEndpoint } from "./endpoints";

/** What stands before the name in the address, where an online endpoint's name stands alone. */
export const BATCH = "batch";

export function BatchEndpointTable({ endpoints }: { endpoints: readonly BatchEndpoint[] }) {
  const workspace = useWorkspace();
  const columns: Column<BatchEndpoint>[] = [
    { id: "name", head: "Name", width: "grow", cell: (row) => (
      <span class="job-name">
        <span class="job-title"><a class="job-link" href={href(workspace, "endpoints", [BATCH, row.name])}>{row.name}</a></span>
        {row.description && <span class="job-why dim" title={row.description}>{row.description}</span>}
      </span>
    ) },
    { id: "default", head: "Default deployment", cell: (row) => row.defaults.deployment_name || <span class="dim">none</span> },
    { id: "owner", head: "Owner", cell: (row) => <JobsOf owner={row.owner} /> },
    { id: "changed", head: "Changed", numeric: true, cell: (row) => <span class="dim"><Ago at={row.changed_at} /></span> },
  ];
  return <Table label="Batch endpoints" columns={columns} rows={endpoints} keyOf={(row) => row.name} />;
}
