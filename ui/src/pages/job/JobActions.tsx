/** What can be done with a job. */
import { useState } from "preact/hooks";
import { api, send } from "../../api/client";
import { ENDED, type Job, type JobRow } from "../../api/model";
import { Button } from "../../components/Button";
import { Confirm } from "../../components/Dialog";
import { Icon } from "../../components/Icon";
import { Menu } from "../../components/Menu";
import { attempt } from "../../components/Toast";
import { href, jobHref } from "../../lib/address";
import { navigate } from "../../lib/router";
import { mayWrite, useSession } from "../../lib/session";
import { CloneDialog } from "./CloneDialog";
import { cloned } from "./documents";
import { RegisterDialog } from "./RegisterDialog";

type Ask = "cancel" | "clone" | "register" | "retry" | null;

export function JobActions({ job, onChange }: { job: Job; onChange: () => void }) {
  const { workspace, person } = useSession();
  const [ask, setAsk] = useState<Ask>(null);
  const isOver = ENDED.has(job.status);
  const isCommand = job.type === "command";
  /** Of jobs of its own: trials or steps. */
  const parts = { sweep: "trials", pipeline: "steps" }[job.type];
  const post = async (verb: string, done: string, query = {}): Promise<void> => {
    await attempt(send("POST", api(workspace, ["jobs", job.name, verb], query)), done);
    onChange();
  };
  const retry = async (): Promise<void> => {
    const sent = isCommand ? send<JobRow>("POST", api(workspace, ["jobs"]), cloned(job)) : send<JobRow>("POST", api(workspace, ["pipelines", job.name, "retry"]));
    const made = await attempt(sent, "Submitted once more");
    if (made) navigate(jobHref(workspace, made.name));
  };
  const compare = <Button icon="compare" href={href(workspace, "compare", [], { job: [job.name, job.properties["torchyard.cloned_from"] ?? ""].filter(Boolean) })}>Compare</Button>;
  if (!mayWrite(person)) return parts ? null : compare;
  return (
    <>
      {!isOver && job.status !== "CancelRequested" && <Button icon="stop" kind="danger" onClick={() => setAsk("cancel")}>Cancel</Button>}
      {!isOver && job.status === "CancelRequested" && <Button icon="stop" kind="danger" onClick={() => void post("cancel", `Its ${parts ?? "ranks"} end at once`, { now: "true" })}>End at once</Button>}
      {isCommand && isOver && <Button icon="retry" onClick={() => void retry()}>Retry</Button>}
      {job.type === "pipeline" && isOver && job.status !== "Completed" && <Button icon="retry" onClick={() => setAsk("retry")}>Retry</Button>}
      {isCommand && <Button icon="clone" onClick={() => setAsk("clone")}>Clone</Button>}
      {!parts && compare}
      {!parts && job.status === "Completed" && <Button icon="models" onClick={() => setAsk("register")}>Register model</Button>}
      {isOver && (
        <Menu icon="more" label="More">
          {(close) => (
            <button type="button" class="menu-item" onClick={() => { close(); void post(job.archived ? "restore" : "archive", job.archived ? "Restored" : "Archived"); }}>
              <Icon name="archive" />{job.archived ? "Restore from the archive" : "Archive"}
            </button>
          )}
        </Menu>
      )}
      {ask === "cancel" && (
        <Confirm title="Cancel this job?" action="Cancel the job" onClose={() => setAsk(null)} onConfirm={() => void post("cancel", "Canceling")}>
          <p>Its {parts ?? "ranks"} get a moment to end. What {parts ? "they" : "it"} wrote is kept.</p>
        </Confirm>
      )}
      {ask === "retry" && (
        <Confirm title="Retry this pipeline?" action="Retry the pipeline" onClose={() => setAsk(null)} onConfirm={() => void retry()}>
          <p>A new pipeline keeps what had completed in this one; the other steps run.</p>
        </Confirm>
      )}
      {ask === "clone" && <CloneDialog job={job} onClose={() => setAsk(null)} />}
      {ask === "register" && <RegisterDialog job={job} onClose={() => setAsk(null)} onDone={onChange} />}
    </>
  );
}
