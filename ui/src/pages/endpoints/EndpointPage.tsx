/** One online endpoint: its deployments and their instances, its traffic, how fast it answers. */
import { type Source, MetricChart } from "../../charts/MetricChart";
import { api, get } from "../../api/client";
import type { Job, Page } from "../../api/model";
import { Badge } from "../../components/Badge";
import { Ago } from "../../components/Duration";
import { Empty, ErrorNote, Loading } from "../../components/Empty";
import { Icon } from "../../components/Icon";
import { Facts, PageHead, Panel } from "../../components/Panel";
import { type Column, Table } from "../../components/Table";
import { href, jobHref } from "../../lib/address";
import { useLoad, useThrottled } from "../../lib/query";
import { useEvent, useWorkspace } from "../../lib/session";
import { JobsOf } from "../compute/tables";
import { type Deployment, type Endpoint, type Instance, toneOfState, trafficText } from "./endpoints";
import { ModelLink } from "./ModelLink";
import { TryPanel } from "./TryPanel";

/** What the job of a deployment's first instance logs while requests come. */
const MEASURES = ["requests_per_s", "latency_p50_ms", "latency_p99_ms", "errors"] as const;

export function EndpointPage({ name }: { name: string }) {
  const workspace = useWorkspace();
  const url = api(workspace, ["online-endpoints", name]);
  const { data: endpoint, error, reload } = useLoad(url, (signal) => get<Endpoint>(url, signal));
  const deploymentsUrl = api(workspace, ["online-endpoints", name, "deployments"]);
  const deployments = useLoad(endpoint ? deploymentsUrl : null, (signal) => get<Page<Deployment>>(deploymentsUrl, signal));
  const again = useThrottled(() => { reload(); deployments.reload(); }, 800);
  useEvent("job", again);
  useEvent("refresh", again);
  if (!endpoint) return error ? <ErrorNote error={error} /> : <Loading label="Loading the endpoint" />;
  const rows = deployments.data?.value;
  return (
    <>
      <PageHead
        title={endpoint.name}
        above={<a href={href(workspace, "endpoints")}>Endpoints</a>}
        beside={<Badge tone={toneOfState(endpoint.provisioning_state)}>{endpoint.provisioning_state}</Badge>}
      />
      {endpoint.message && <Failure text={endpoint.message} />}
      {deployments.error && <ErrorNote error={deployments.error} />}
      <div class="overview">
        <div class="overview-main">
          {!rows && !deployments.error && <Loading />}
          {rows && <Deployments endpoint={endpoint} rows={rows} />}
          {rows && rows.length > 0 && endpoint.scoring_uri && endpoint.auth_mode !== "aad_token" && <TryPanel endpoint={endpoint} deployments={rows.map((row) => row.name)} />}
          {rows && <Measures rows={rows} />}
        </div>
        <div class="overview-side"><About endpoint={endpoint} /></div>
      </div>
    </>
  );
}

function Failure({ text }: { text: string }) {
  return <div class="note note-red" role="alert"><Icon name="warn" /><div><p>{text}</p></div></div>;
}

function Deployments({ endpoint, rows }: { endpoint: Endpoint; rows: readonly Deployment[] }) {
  if (!rows.length) {
    return <Panel title="Deployments"><Empty title="No deployment answers yet" command={`yard online-deployment create -f deployment.yml --endpoint-name ${endpoint.name}`} /></Panel>;
  }
  const columns: Column<Deployment>[] = [
    { id: "name", head: "Deployment", width: "grow", cell: (row) => <span class="strong">{row.name}</span> },
    { id: "state", head: "State", cell: (row) => <Badge tone={toneOfState(row.provisioning_state)}>{row.provisioning_state}</Badge> },
    { id: "traffic", head: "Traffic", numeric: true, cell: (row) => <Share endpoint={endpoint} name={row.name} /> },
    { id: "model", head: "Model", cell: (row) => <ModelLink model={row.model} /> },
    { id: "ready", head: "Ready", numeric: true, cell: (row) => `${row.instances.filter((each) => each.state === "Ready").length} of ${row.instance_count}` },
    { id: "changed", head: "Changed", numeric: true, cell: (row) => <span class="dim"><Ago at={row.changed_at} /></span> },
  ];
  const instances = rows.flatMap((row) => row.instances.map((instance) => ({ ...instance, deployment: row.name })));
  return (
    <>
      {rows.filter((row) => row.message).map((row) => {
        const text = `${row.name}: ${row.message}`;
        return row.provisioning_state === "Failed" ? <Failure key={row.name} text={text} /> : <div key={row.name} class="note note-amber"><Icon name="info" /><div><p>{text}</p></div></div>;
      })}
      <Panel title="Deployments" flush><Table label="Deployments" columns={columns} rows={rows} keyOf={(row) => row.name} /></Panel>
      {instances.length > 0 && <Panel title="Instances" flush><Instances rows={instances} /></Panel>}
    </>
  );
}

function Share({ endpoint, name }: { endpoint: Endpoint; name: string }) {
  const mirrored = endpoint.mirror_traffic[name];
  return <>{endpoint.traffic[name] ?? 0} %{mirrored ? <span class="dim"> and a copy of {mirrored} %</span> : null}</>;
}

function Instances({ rows }: { rows: readonly (Instance & { deployment: string })[] }) {
  const workspace = useWorkspace();
  const columns: Column<Instance & { deployment: string }>[] = [
    { id: "job", head: "Job", width: "grow", cell: (row) => row.job ? <a class="job-link" href={jobHref(workspace, row.job, { tab: "logs" })}>{row.job}</a> : <span class="dim">–</span> },
    { id: "deployment", head: "Deployment", cell: (row) => row.deployment },
    { id: "state", head: "State", cell: (row) => <Badge tone={toneOfState(row.state)} title={row.message}>{row.state}</Badge> },
    { id: "starts", head: "Starts", numeric: true, cell: (row) => row.starts },
    { id: "since", head: "Since", numeric: true, cell: (row) => <span class="dim"><Ago at={row.created_at} /></span> },
  ];
  return <Table label="Instances" columns={columns} rows={rows} keyOf={(row) => row.id} />;
}

/** A chart for each measure, with a line for each deployment that requests came to. */
function Measures({ rows }: { rows: readonly Deployment[] }) {
  const workspace = useWorkspace();
  const names = rows.map((row) => row.instances[0]?.job ?? "").filter(Boolean);
  const { data: jobs, reload } = useLoad(names.length ? `measured ${workspace} ${names.join(" ")}` : null, (signal) =>
    Promise.all(names.map((name) => get<Job>(api(workspace, ["jobs", name]), signal).catch(() => null))));
  useEvent("job", (event) => { if (names.includes(event.name)) reload(); });
  const sources = (key: string): Source[] => rows.flatMap((row, color) => {
    const job = jobs?.find((each) => each?.name === row.instances[0]?.job);
    return job && key in job.metrics ? [{ job: job.name, key, label: row.name, color, start: Date.parse(job.started_at ?? job.created_at) }] : [];
  });
  const logged = MEASURES.filter((key) => sources(key).length > 0);
  if (!jobs) return null;
  if (!logged.length) return <Panel title="Requests"><p class="dim">Requests and latency appear here half a minute after the first request.</p></Panel>;
  return (
    <section aria-label="Requests">
      <div class="metric-grid">
        {logged.map((key) => <MetricChart key={key} title={key} sources={() => sources(key)} axis={{ x: "time", log: false, smoothing: 0 }} sync="endpoint" />)}
      </div>
    </section>
  );
}

function About({ endpoint }: { endpoint: Endpoint }) {
  return (
    <Panel title="About">
      <Facts rows={[
        ["Description", endpoint.description],
        ["Address", endpoint.scoring_uri && <span class="clip" title={endpoint.scoring_uri}>{endpoint.scoring_uri}</span>],
        ["Traffic", trafficText(endpoint.traffic) || "none"],
        ["Mirrored", trafficText(endpoint.mirror_traffic)],
        ["Signed in by", endpoint.auth_mode],
        ["Owner", <JobsOf owner={endpoint.owner} />],
        ["Created", <Ago at={endpoint.created_at} />],
      ]} />
    </Panel>
  );
}
