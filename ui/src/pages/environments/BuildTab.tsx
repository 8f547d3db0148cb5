/** The last build of an environment and its log, which goes on while it is built. */
import type { ComponentChildren } from "preact";
import { useEffect, useState } from "preact/hooks";
import { ApiError, api, get } from "../../api/client";
import { Badge } from "../../components/Badge";
import { Copy } from "../../components/Copy";
import { Empty, ErrorNote, Loading } from "../../components/Empty";
import { Panel } from "../../components/Panel";
import { useWorkspace } from "../../lib/session";
import { type BuildLog, buildTone, type EnvironmentVersion, reference } from "./environments";

const AGAIN_MS = 1500;
/** A log is read in pieces; more than these are not kept. */
const MOST_CHARACTERS = 4 << 20;

export function BuildTab({ environment, onBuilt }: { environment: EnvironmentVersion; onBuilt: () => void }) {
  return (
    <BuildLogOf environment={environment} name={reference(environment)} onBuilt={onBuilt}>
      <Empty title="Never built here" command={`yard environment build -n ${environment.name} -v ${environment.version}`}>The first job that uses it builds it, or do it now.</Empty>
    </BuildLogOf>
  );
}

type Built = Pick<EnvironmentVersion, "hash" | "build">;

/** `children` stand there when it was never built. */
export function BuildLogOf({ environment, name, onBuilt, children }: { environment: Built; name: string; onBuilt: () => void; children: ComponentChildren }) {
  const { build, text, error } = useBuild(environment, onBuilt);
  if (error?.status === 404) return <>{children}</>;
  if (error && !build) return <ErrorNote error={error} />;
  if (!build) return <Loading label="Loading the build" />;
  return (
    <div class="stack">
      {build.error && <ErrorNote error={{ message: build.error, hint: build.hint }} />}
      <Panel title="Build log" aside={<><Badge tone={buildTone(build.status)}>{build.status}</Badge><Copy text={text} label="Copy the log" /></>}>
        {text ? <pre class="code-block log-text-box" tabIndex={0} aria-live="off">{text}</pre> : <p class="dim">It has no log: {name} was unpacked, not built.</p>}
      </Panel>
    </div>
  );
}

/** Reads the log from where it ended until the build has ended, too. */
function useBuild(environment: Built, onBuilt: () => void): { build: BuildLog | null; text: string; error: ApiError | null } {
  const workspace = useWorkspace();
  const [state, setState] = useState<{ build: BuildLog | null; text: string; error: ApiError | null }>({ build: null, text: "", error: null });
  useEffect(() => {
    const abort = new AbortController();
    let timer = 0;
    let text = "";
    let wasBuilding = false;
    const read = async (offset: number): Promise<void> => {
      try {
        const build = await get<BuildLog>(api(workspace, ["environments", "builds", environment.hash], { offset }), abort.signal);
        text = (text + build.log).slice(-MOST_CHARACTERS);
        setState({ build, text, error: null });
        if (build.next_offset > offset) return void (await read(build.next_offset));
        if (build.status === "building") {
          wasBuilding = true;
          timer = window.setTimeout(() => void read(build.next_offset), AGAIN_MS);
        } else if (wasBuilding) onBuilt();
      } catch (error) {
        if (!abort.signal.aborted) setState((last) => ({ ...last, error: error instanceof ApiError ? error : new ApiError(0, "page", String(error), "") }));
      }
    };
    void read(0);
    return () => {
      abort.abort();
      clearTimeout(timer);
    };
  }, [workspace, environment.hash, environment.build]);
  return state;
}
