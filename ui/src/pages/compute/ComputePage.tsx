/** Compute of the workspace: all clusters, or the one that the address names. */
import { ClusterPage } from "./ClusterPage";
import { ComputeList } from "./ComputeList";

export default function ComputePage({ names }: { names: string[] }) {
  const [name] = names;
  return name ? <ClusterPage name={name} /> : <ComputeList />;
}
