/** Environments of the workspace: all, or the one that the address names. */
import { EnvironmentList } from "./EnvironmentList";
import { EnvironmentPage } from "./EnvironmentPage";

export default function EnvironmentsPage({ names }: { names: string[] }) {
  const [name, version] = names;
  return name ? <EnvironmentPage name={name} version={version ?? ""} /> : <EnvironmentList />;
}
