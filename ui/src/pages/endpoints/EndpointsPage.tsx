/** Online endpoints of the workspace, and one of them. */
import { EndpointList } from "./EndpointList";
import { EndpointPage } from "./EndpointPage";

export default function EndpointsPage({ names }: { names: string[] }) {
  const [name] = names;
  return name ? <EndpointPage name={name} /> : <EndpointList />;
}
