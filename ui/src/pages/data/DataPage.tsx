/** Data of the workspace: assets, one of them, and the datastores that files are in. */
import { Empty } from "../../components/Empty";
import { PageHead } from "../../components/Panel";
import { TabPanel, Tabs } from "../../components/Tabs";
import { setQuery, useAddress } from "../../lib/router";
import { AssetList } from "../assets/AssetList";
import { AssetPage } from "../assets/AssetPage";
import { Datastores } from "./Datastores";

const TABS = [{ id: "assets", label: "Assets" }, { id: "datastores", label: "Datastores" }];

export default function DataPage({ names }: { names: string[] }) {
  const { query } = useAddress();
  if (names.length) return <AssetPage kind="data" title="Data" names={names} />;
  const chosen = query.get("tab") === "datastores" ? "datastores" : "assets";
  return (
    <>
      <PageHead title="Data" />
      <Tabs label="Kinds of data" tabs={TABS} chosen={chosen} onChoose={(tab) => setQuery({ tab: tab === "assets" ? null : tab, datastore: null }, false)} />
      <TabPanel id={chosen}>
        {chosen === "datastores" ? <Datastores /> : (
          <AssetList kind="data" label="Data" empty={
            <Empty title="No data here yet" command="yard data create --name mnist --path ./mnist --type uri_folder">
              Each registration is a version of its own; jobs name it as an input and get its files on every node.
            </Empty>
          } />
        )}
      </TabPanel>
    </>
  );
}
