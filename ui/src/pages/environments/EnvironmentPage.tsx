/** One environment: its versions, what one of them holds, how its build went. */
import { api, get, send } from "../../api/client";
import type { Page } from "../../api/model";
import { Badge } from "../../components/Badge";
import { Button } from "../../components/Button";
import { Copy } from "../../components/Copy";
import { Ago } from "../../components/Duration";
import { ErrorNote, Loading } from "../../components/Empty";
import { Select } from "../../components/Field";
import { Icon } from "../../components/Icon";
import { Facts, PageHead, Panel } from "../../components/Panel";
import { TabPanel, Tabs } from "../../components/Tabs";
import { attempt } from "../../components/Toast";
import { href } from "../../lib/address";
import { bytes } from "../../lib/format";
import { useLoad } from "../../lib/query";
import { navigate, setQuery, useAddress } from "../../lib/router";
import { mayWrite, useSession, useWorkspace } from "../../lib/session";
import { BuildTab } from "./BuildTab";
import { buildTone, type Environment, type EnvironmentVersion, isCurated, packagesOf, pythonOf, reference } from "./environments";
import { GeneratedTab } from "./GeneratedTab";
import { Packages } from "./Packages";

const LATEST = "latest";
const TABS = [["packages", "Packages"], ["files", "Generated files"], ["definition", "Definition"], ["build", "Build"]] as const;
type TabId = (typeof TABS)[number][0];

export function EnvironmentPage({ name, version }: { name: string; version: string }) {
  const { workspace, person } = useSession();
  const { query } = useAddress();
  const url = api(workspace, ["environments", name, "versions", version || LATEST]);
  const { data, error, reload } = useLoad(url, (signal) => get<EnvironmentVersion>(url, signal));
  if (!data) return error ? <ErrorNote error={error} /> : <Loading label="Loading the environment" />;
  const chosen = TABS.find(([id]) => id === query.get("tab"))?.[0] ?? "packages";
  const build = async (): Promise<void> => {
    const begun = await attempt(send("POST", api(workspace, ["environments", "build"]), { environment: reference(data) }), "The build has begun");
    if (!begun) return;
    reload();
    setQuery({ tab: "build" }, false);
  };
  const mayBuild = mayWrite(person) && data.build !== "ready" && data.build !== "building";
  return (
    <>
      <PageHead
        title={data.name}
        above={<a href={href(workspace, "environments")}>Environments</a>}
        beside={<>
          <Badge tone={buildTone(data.build)}>{data.build}</Badge>
          {isCurated(data) && <Badge tone="grey">Curated</Badge>}
          {data.archived && <Badge tone="grey">Archived</Badge>}
        </>}
        actions={<>
          <Versions name={data.name} version={data.version} />
          {mayBuild && <Button icon="retry" onClick={() => void build()}>{data.build === "failed" ? "Build again" : "Build"}</Button>}
        </>}
      />
      {data.error && chosen !== "build" && <div class="waiting"><ErrorNote error={{ message: data.error, hint: "" }} /></div>}
      <div class="overview">
        <div class="overview-main">
          <div>
            <Tabs label="Parts of the environment" chosen={chosen} tabs={TABS.map(([id, label]) => ({ id, label, note: id === "packages" ? packagesOf(data).length + (data.conda_packages?.length ?? 0) : null }))} onChoose={(tab) => setQuery({ tab: tab === "packages" ? null : tab, filter: null }, false)} />
            <TabPanel id={chosen}><Part tab={chosen} environment={data} onBuilt={reload} /></TabPanel>
          </div>
        </div>
        <div class="overview-side"><About environment={data} /></div>
      </div>
    </>
  );
}

function Part({ tab, environment, onBuilt }: { tab: TabId; environment: EnvironmentVersion; onBuilt: () => void }) {
  switch (tab) {
    case "files": return <GeneratedTab environment={environment} />;
    case "definition": return <Definition environment={environment} />;
    case "build": return <BuildTab key={environment.hash} environment={environment} onBuilt={onBuilt} />;
    default: return <Packages environment={environment} />;
  }
}

function Versions({ name, version }: { name: string; version: string }) {
  const workspace = useWorkspace();
  const url = api(workspace, ["environments"], { name, archived: "true" });
  const { data } = useLoad(url, (signal) => get<Page<Environment>>(url, signal));
  const versions = [...new Set([version, ...(data?.value ?? []).map((each) => each.version)])];
  if (versions.length < 2) return null;
  const options = versions.sort((a, b) => b.localeCompare(a, "en", { numeric: true })).map((each) => [each, `Version ${each}`] as const);
  return <Select label="Version" value={version} options={options} onChange={(chosen) => navigate(href(workspace, "environments", [name, chosen]))} />;
}

function About({ environment: row }: { environment: EnvironmentVersion }) {
  const workspace = useWorkspace();
  const line = `environment: ${reference(row)}`;
  return (
    <>
      <Panel title="About">
        <Facts rows={[
          ["Version", <a href={href(workspace, "environments", [row.name, row.version])}>{row.version}</a>],
          ["Description", row.description],
          ["Python", pythonOf(row)],
          ["PyTorch", row.torch],
          ["CUDA", row.cuda],
          ["Size", row.size_bytes ? bytes(row.size_bytes) : ""],
          ["Content", <span class="mono">{row.hash}</span>],
          ["Owner", row.owner && <a href={href(workspace, "jobs", [], { owner: row.owner })}>{row.owner}</a>],
          ["Created", row.created_at && <Ago at={row.created_at} />],
          ...Object.entries(row.tags ?? {}).map(([key, value]) => [`tag ${key}`, value] as const),
        ]} />
      </Panel>
      <Panel title="In a job file" aside={<Copy text={line} label="Copy the line" />}><pre class="code-block" tabIndex={0}>{line}</pre></Panel>
      {row.notices.length > 0 && <Panel title="Notices"><ul class="notices">{row.notices.map((notice, at) => <li key={at}><Icon name="info" size={14} /><span>{notice}</span></li>)}</ul></Panel>}
    </>
  );
}

const NOT_OF_DEFINITION = new Set([
  "workspace", "name", "version", "created_at", "owner", "description", "tags", "properties", "archived", "status", "hash", "build",
  "notices", "packages", "conda_packages", "error", "size_bytes", "torch", "cuda",
]);

/** What it was registered as. */
function Definition({ environment }: { environment: EnvironmentVersion }) {
  if (isCurated(environment)) return <Panel title="Definition"><p class="intro">A curated environment comes with torchyard: its packages and its generated files say what it holds.</p></Panel>;
  const entries = Object.entries(environment).filter(([key]) => !NOT_OF_DEFINITION.has(key));
  const text = JSON.stringify(Object.fromEntries(entries), null, 2);
  return <Panel title="Definition" aside={<Copy text={text} label="Copy the definition" />}><pre class="code-block" tabIndex={0}>{text}</pre></Panel>;
}
