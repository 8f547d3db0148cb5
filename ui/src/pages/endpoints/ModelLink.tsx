/** The model of a deployment: registered, of files of its own, or none. */
import { href } from "../../lib/address";
import { useWorkspace } from "../../lib/session";
import { modelOf } from "./endpoints";

export function ModelLink({ model }: { model: unknown }) {
  const workspace = useWorkspace();
  const registered = modelOf(model);
  if (!registered) return <span class="dim">{model ? "files of its own" : "–"}</span>;
  const [name, version] = registered;
  return <a class="link" href={href(workspace, "models", [name, version])}>{name}:{version}</a>;
}
