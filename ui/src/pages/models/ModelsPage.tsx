/** Models of the workspace, and one of them. */
import { Empty } from "../../components/Empty";
import { PageHead } from "../../components/Panel";
import { href } from "../../lib/address";
import { useWorkspace } from "../../lib/session";
import { AssetList } from "../assets/AssetList";
import { AssetPage } from "../assets/AssetPage";

export default function ModelsPage({ names }: { names: string[] }) {
  const workspace = useWorkspace();
  if (names.length) return <AssetPage kind="models" title="Models" names={names} />;
  return (
    <>
      <PageHead title="Models" />
      <AssetList kind="models" label="Models" empty={
        <Empty title="No models here yet" command="yard model create --name digits --path outputs/model.pt">
          Register what a job wrote on the page of the <a class="link" href={href(workspace, "jobs", [], { status: "Completed" })}>job</a>, or files of yours by this command.
        </Empty>
      } />
    </>
  );
}
