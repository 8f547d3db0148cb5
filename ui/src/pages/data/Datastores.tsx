/** The places that files are in. Credentials never leave the server. */
import { api, get } from "../../api/client";
import type { Page } from "../../api/model";
import { Badge } from "../../components/Badge";
import { Copy } from "../../components/Copy";
import { Ago } from "../../components/Duration";
import { Empty, ErrorNote, Loading } from "../../components/Empty";
import { Facts, Panel } from "../../components/Panel";
import { Table } from "../../components/Table";
import { href } from "../../lib/address";
import { useLoad } from "../../lib/query";
import { useAddress } from "../../lib/router";
import { useWorkspace } from "../../lib/session";
import { type Asset, type Datastore, datastoreOf } from "../assets/types";

export function Datastores() {
  const workspace = useWorkspace();
  const { query } = useAddress();
  const url = api(workspace, ["datastores"]);
  const { data, error } = useLoad(url, (signal) => get<Page<Datastore>>(url, signal));
  if (error && !data) return <ErrorNote error={error} />;
  if (!data) return <Loading />;
  const name = query.get("datastore");
  const chosen = data.value.find((each) => each.name === name);
  return (
    <div class="stack">
      {name && !chosen && <ErrorNote error={{ message: `there is no datastore \`${name}\``, hint: "choose one of these" }} />}
      <Table
        label="Datastores" rows={data.value} keyOf={(row) => row.name} rowClass={(row) => (row.name === name ? "is-selected" : "")}
        columns={[
          { id: "name", head: "Name", width: "grow", cell: (row) => <Name row={row} /> },
          { id: "type", head: "Type", cell: (row) => row.type },
          { id: "url", head: "Place", cell: (row) => <span class="mono clip asset-place" title={row.url}>{row.url}</span> },
          { id: "created_at", head: "Created", numeric: true, cell: (row) => <span class="dim">{row.built_in ? "with the workspace" : <Ago at={row.created_at} />}</span> },
        ]}
      />
      {chosen && <One store={chosen} />}
      {data.value.every((each) => each.built_in) && <Empty title="Only those of the workspace" command="yard datastore create --file datastore.yml">A bucket, a container or a folder can be added; paths in it then begin with azureml://datastores/NAME/paths/.</Empty>}
    </div>
  );
}

function Name({ row }: { row: Datastore }) {
  const workspace = useWorkspace();
  return (
    <span class="job-name">
      <span class="job-title">
        <a class="job-link" href={href(workspace, "data", [], { tab: "datastores", datastore: row.name })}>{row.name}</a>
        {row.is_default && <Badge tone="blue">default</Badge>}
      </span>
      {row.description && <span class="job-why dim">{row.description}</span>}
    </span>
  );
}

const SAID = new Set(["name", "type", "workspace", "description", "tags", "url", "created_at", "built_in", "is_default"]);

function One({ store }: { store: Datastore }) {
  const workspace = useWorkspace();
  const url = api(workspace, ["data"]);
  const { data } = useLoad(url, (signal) => get<Page<Asset>>(url, signal));
  const inside = data?.value.filter((asset) => datastoreOf(asset.path ?? "") === store.name) ?? [];
  const address = `azureml://datastores/${store.name}/paths/`;
  const more = Object.entries(store).filter(([key, value]) => !SAID.has(key) && value !== null && value !== "");
  return (
    <Panel title={store.name} aside={<Copy text={address} label="Copy the address" />}>
      <Facts rows={[
        ["Address", <span class="mono">{address}</span>],
        ["Place", <span class="mono">{store.url}</span>],
        ["Type", store.type],
        ...more.map(([key, value]) => [key, <span class="mono">{typeof value === "object" ? JSON.stringify(value) : String(value)}</span>] as const),
        ...Object.entries(store.tags).map(([key, value]) => [`Tag ${key}`, value] as const),
        ["Data in it", inside.length > 0 && inside.slice(0, 50).map((asset) => <div key={asset.name}><a href={href(workspace, "data", [asset.name, String(asset.version)])}>{asset.name}:{asset.version}</a></div>)],
      ]} />
    </Panel>
  );
}
