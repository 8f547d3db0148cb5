/** The packages of an environment, found by name. */
import { Panel } from "../../components/Panel";
import { plural } from "../../lib/format";
import { setQuery, useAddress } from "../../lib/router";
import { type EnvironmentVersion, packagesOf, splitPackage } from "./environments";

export type Contents = Pick<EnvironmentVersion, "packages" | "conda_packages" | "conda_file" | "build">;

export function Packages({ environment, image = "" }: { environment: Contents; image?: string }) {
  const { query } = useAddress();
  const filter = query.get("filter") ?? "";
  const pip = packagesOf(environment);
  const conda = environment.conda_packages ?? [];
  const isLocked = environment.build === "ready";
  if (!pip.length && !conda.length) return <Panel title="Packages"><p class="dim">{image ? `What the image ${image} has, and nothing else.` : "Python and pip, and nothing else."}</p></Panel>;
  return (
    <div class="stack">
      <p class="intro">{isLocked ? "As they are installed." : "As the definition asks for them: a build chooses their exact versions."}</p>
      <input class="input packages-filter" type="search" aria-label="Filter packages" placeholder="Filter packages" value={filter} onInput={(event) => setQuery({ filter: event.currentTarget.value })} />
      {conda.length > 0 && <List title="conda" packages={conda} filter={filter} />}
      {pip.length > 0 && <List title={conda.length ? "pip" : "Packages"} packages={pip} filter={filter} />}
    </div>
  );
}

function List({ title, packages, filter }: { title: string; packages: readonly string[]; filter: string }) {
  const shown = packages.filter((line) => line.toLowerCase().includes(filter.toLowerCase()));
  return (
    <Panel title={title} aside={<span class="number">{shown.length < packages.length ? `${shown.length} of ${packages.length}` : plural(packages.length, "package")}</span>}>
      {shown.length > 0
        ? <ul class="packages">{shown.map((line) => { const [name, version] = splitPackage(line); return <li key={line} title={line}>{name} <span class="dim">{version}</span></li>; })}</ul>
        : <p class="dim">No package fits.</p>}
    </Panel>
  );
}
