/** The shared worker that holds the streams of a browser's tabs; its name is the session's id. */
import { EventHub, type Port } from "./event_hub";

const scope = self as unknown as { name: string; onconnect: ((event: MessageEvent) => void) | null };
const hub = new EventHub(scope.name);
scope.onconnect = ({ ports }) => ports[0] && hub.serve(ports[0] as unknown as Port);
