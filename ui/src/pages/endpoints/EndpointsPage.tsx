/** The endpoints of the workspace, and one of them: online, or below `batch` one that scores files. */
import { BatchEndpointPage } from "./BatchEndpointPage";
import { BATCH } from "./BatchEndpointTable";
import { EndpointList } from "./EndpointList";
import { EndpointPage } from "./EndpointPage";

export default function EndpointsPage({ names }: { names: string[] }) {
  const [name, second] = names;
  if (name === BATCH && second) return <BatchEndpointPage name={second} />;
  return name ? <EndpointPage name={name} /> : <EndpointList />;
}
