/** One version of a model or of data: what it is, where it comes from, what uses it, its files. */
import type { ComponentChildren } from "preact";
import { api, get, send } from "../../api/client";
import type { Job, Page } from "../../api/model";
import { Badge } from "../../components/Badge";
import { Button } from "../../components/Button";
import { Copy } from "../../components/Copy";
import { Ago } from "../../components/Duration";
import { Empty, ErrorNote, Loading } from "../../components/Empty";
import { Select } from "../../components/Field";
import { Facts, PageHead, Panel } from "../../components/Panel";
import { TabPanel, Tabs } from "../../components/Tabs";
import { attempt } from "../../components/Toast";
import { href, jobHref } from "../../lib/address";
import { number } from "../../lib/format";
import { useLoad, useThrottled } from "../../lib/query";
import { navigate, setQuery, useAddress } from "../../lib/router";
import { mayWrite, useEvent, useSession } from "../../lib/session";
import { LineagePanel } from "../lineage/LineagePanel";
import { AssetFiles } from "./AssetFiles";
import { Stage } from "./AssetList";
import { AssetTags } from "./AssetTags";
import { addressOf, type Asset, type AssetKind, datastoreOf, stageOf } from "./types";
import { Versions } from "./Versions";

const TABS = [["overview", "Overview"], ["files", "Files"], ["versions", "Versions"]] as const;
const STAGES = ["Development", "Staging", "Production"];

export function AssetPage({ kind, title, names }: { kind: AssetKind; title: string; names: readonly string[] }) {
  const { workspace } = useSession();
  const [name = "", wanted = ""] = names;
  const { query } = useAddress();
  const listUrl = api(workspace, [kind], { name, archived: "true" });
  const list = useLoad(listUrl, (signal) => get<Page<Asset>>(listUrl, signal));
  const known = list.data?.value ?? [];
  // Without a version the newest that is not archived; the server knows aliases and labels.
  const version = wanted || String((known.find((each) => !each.archived) ?? known[0])?.version ?? "");
  const url = version ? api(workspace, [kind, name, "versions", version]) : null;
  const { data: asset, error, reload } = useLoad(url, (signal) => get<Asset>(url as string, signal));
  const both = (): void => { list.reload(); reload(); };
  const again = useThrottled(both, 2000);
  useEvent("job", again);
  useEvent("refresh", again);

  const above = <><a href={href(workspace, kind)}>{title}</a> / {name}</>;
  if (list.data && !known.length) return <><PageHead title={name} above={above} /><Empty title={`There is no ${kind === "models" ? "model" : "data asset"} of this name`}><a class="link" href={href(workspace, kind)}>Show all {kind}</a></Empty></>;
  if (!asset) return error ?? list.error ? <><PageHead title={name} above={above} /><ErrorNote error={(error ?? list.error)!} /></> : <Loading />;
  const chosen = TABS.find(([id]) => id === query.get("tab"))?.[0] ?? "overview";
  return (
    <>
      <PageHead
        title={asset.name} above={above}
        beside={<>
          <VersionChoice kind={kind} asset={asset} known={known} />
          {stageOf(asset) && <Stage asset={asset} />}
          {asset.aliases?.map((alias) => <Badge key={alias} tone="blue" title="An alias of this version">{alias}</Badge>)}
          {asset.archived && <Badge tone="grey">Archived</Badge>}
        </>}
        actions={<Actions kind={kind} asset={asset} onChange={both} />}
      />
      <Tabs
        label="Parts of the version" chosen={chosen}
        tabs={TABS.map(([id, label]) => ({ id, label, note: id === "versions" ? known.length : undefined }))}
        onChoose={(tab) => setQuery({ tab: tab === "overview" ? null : tab, path: null }, false)}
      />
      <TabPanel id={chosen}>
        {chosen === "files" ? <AssetFiles key={asset.version} kind={kind} asset={asset} />
          : chosen === "versions" ? <Versions kind={kind} versions={known} chosen={String(asset.version)} />
            : <Overview kind={kind} asset={asset} onChange={reload} />}
      </TabPanel>
    </>
  );
}

function VersionChoice({ kind, asset, known }: { kind: AssetKind; asset: Asset; known: readonly Asset[] }) {
  const { workspace } = useSession();
  const { query } = useAddress();
  const versions = known.map((each) => String(each.version));
  if (!versions.includes(String(asset.version))) versions.unshift(String(asset.version));
  const go = (version: string): void => navigate(href(workspace, kind, [asset.name, version], { tab: query.get("tab"), path: query.get("path") }));
  return <Select label="Version" value={String(asset.version)} options={versions.map((version) => [version, `Version ${version}`])} onChange={go} />;
}

function Actions({ kind, asset, onChange }: { kind: AssetKind; asset: Asset; onChange: () => void }) {
  const { workspace, person } = useSession();
  if (!mayWrite(person)) return null;
  const url = api(workspace, [kind, asset.name, "versions", String(asset.version)]);
  const archive = async (): Promise<void> => {
    await attempt(send("POST", `${url}/${asset.archived ? "restore" : "archive"}`), asset.archived ? "Restored" : "Archived");
    onChange();
  };
  const stage = async (chosen: string): Promise<void> => {
    const change = chosen ? { stage: chosen } : { properties: { stage: null } };
    await attempt(send("PATCH", url, change), chosen ? `Stage: ${chosen}` : "Without a stage");
    onChange();
  };
  const current = stageOf(asset);
  const stages = [...new Set([...STAGES, current])].filter(Boolean);
  return (
    <>
      {kind === "models" && <Select label="Stage" value={current} options={[["", "No stage"], ...stages.map((each) => [each, each] as const)]} onChange={(chosen) => void stage(chosen)} />}
      <Button icon="archive" onClick={() => void archive()}>{asset.archived ? "Restore" : "Archive"}</Button>
    </>
  );
}

function Overview({ kind, asset, onChange }: { kind: AssetKind; asset: Asset; onChange: () => void }) {
  return (
    <div class="overview">
      <div class="overview-main">
        <LineagePanel of={[kind, asset.name, "versions", String(asset.version)]} origin={<>Uploaded by {asset.owner}, <Ago at={asset.created_at} />.</>} />
        {asset.job && <LastValues name={asset.job} />}
        <Use kind={kind} asset={asset} />
      </div>
      <div class="overview-side">
        <About kind={kind} asset={asset} />
        <AssetTags key={`${asset.name}:${asset.version}`} kind={kind} asset={asset} onChange={onChange} />
        <Properties asset={asset} />
      </div>
    </div>
  );
}

function LastValues({ name }: { name: string }) {
  const { workspace } = useSession();
  const url = api(workspace, ["jobs", name]);
  const metrics = Object.entries(useLoad(url, (signal) => get<Job>(url, signal)).data?.metrics ?? {});
  if (!metrics.length) return null;
  return (
    <Panel title="Last values of the job that made it" aside={<a class="link" href={jobHref(workspace, name, { tab: "metrics" })}>Charts</a>}>
      <dl class="figures">{metrics.map(([key, value]) => <div key={key}><dt title={key}>{key}</dt><dd>{number(value)}</dd></div>)}</dl>
    </Panel>
  );
}

/** What a job file says to get it. */
function Use({ kind, asset }: { kind: AssetKind; asset: Asset }) {
  const name = kind === "models" ? "model" : "data";
  const text = `inputs:\n  ${name}:\n    type: ${asset.type}\n    path: ${addressOf(asset)}\n`;
  return (
    <Panel title="Use it in a job" aside={<Copy text={text} label="Copy the input" />}>
      <pre class="code-block" tabIndex={0}>{text}</pre>
      <p class="dim asset-use">The command reads it at <code>{`\${{inputs.${name}}}`}</code>.</p>
    </Panel>
  );
}

function About({ kind, asset }: { kind: AssetKind; asset: Asset }) {
  const { workspace } = useSession();
  const rows: (readonly [string, ComponentChildren])[] = [
    ["Description", asset.description],
    ["Address", <span class="mono">{addressOf(asset)}</span>],
    ["Type", asset.type],
    ["Made by", asset.job ? <a href={jobHref(workspace, asset.job)}>{asset.job}</a> : "an upload"],
    ["Owner", <a href={href(workspace, "jobs", [], { owner: asset.owner })}>{asset.owner}</a>],
    ["Created", <Ago at={asset.created_at} />],
    ["Path", asset.path && <Path path={asset.path} />],
    ["Registered from", asset.source && <Path path={asset.source} />],
    ["Files", <a href={href(workspace, kind, [asset.name, String(asset.version)], { tab: "files" })}>Browse</a>],
  ];
  return <Panel title="About"><Facts rows={rows} /></Panel>;
}

/** A path, with a way to the datastore or the job that it names. */
function Path({ path }: { path: string }) {
  const { workspace } = useSession();
  const store = datastoreOf(path);
  const job = /^azureml:\/\/jobs\/([^/]+)\//.exec(path)?.[1];
  const to = store ? href(workspace, "data", [], { tab: "datastores", datastore: store }) : job ? jobHref(workspace, job, { tab: "files" }) : null;
  return to ? <a class="mono" href={to}>{path}</a> : <span class="mono">{path}</span>;
}

function Properties({ asset }: { asset: Asset }) {
  const entries = Object.entries(asset.properties).filter(([key]) => key !== "stage");
  if (!entries.length) return null;
  return <Panel title="Properties"><Facts rows={entries.map(([key, value]) => [key, <span class="mono">{value}</span>])} /></Panel>;
}
