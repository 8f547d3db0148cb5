/** What can be done with many jobs at once. */
import { useState } from "preact/hooks";
import { api, send } from "../../api/client";
import { ENDED, type JobRow } from "../../api/model";
import { Button } from "../../components/Button";
import { Confirm, Dialog } from "../../components/Dialog";
import { TextField } from "../../components/Field";
import { Selection } from "../../components/Table";
import { complain, say } from "../../components/Toast";
import { href } from "../../lib/address";
import { plural } from "../../lib/format";
import { mayWrite, useSession } from "../../lib/session";

type Ask = "cancel" | "tag" | null;

export function BulkActions({ jobs, onClear, onDone }: { jobs: readonly JobRow[]; onClear: () => void; onDone: () => void }) {
  const { workspace, person } = useSession();
  const [ask, setAsk] = useState<Ask>(null);
  const active = jobs.filter((job) => !ENDED.has(job.status));
  const ended = jobs.filter((job) => ENDED.has(job.status));
  const isArchived = ended.length > 0 && ended.every((job) => job.archived);

  /** One after the other: what is refused does not keep the others from it. */
  const each = async (chosen: readonly JobRow[], done: string, run: (job: JobRow) => Promise<unknown>): Promise<void> => {
    let many = 0;
    for (const job of chosen) {
      try {
        await run(job);
        many += 1;
      } catch (error) {
        complain(error);
      }
    }
    if (many) say(`${plural(many, "job")} ${done}`);
    onClear();
    onDone();
  };
  const post = (verb: string) => (job: JobRow): Promise<unknown> => send("POST", api(workspace, ["jobs", job.name, verb]));
  const verb = isArchived ? "restore" : "archive";
  return (
    <>
      <Selection many={jobs.length} onClear={onClear}>
        <Button icon="compare" href={href(workspace, "compare", [], { job: jobs.map((job) => job.name) })}>Compare</Button>
        {mayWrite(person) && (
          <>
            <Button icon="tag" onClick={() => setAsk("tag")}>Tag</Button>
            {ended.length > 0 && <Button icon="archive" onClick={() => void each(ended, `${verb}d`, post(verb))}>{isArchived ? "Restore" : "Archive"}</Button>}
            {active.length > 0 && <Button icon="stop" kind="danger" onClick={() => setAsk("cancel")}>Cancel</Button>}
          </>
        )}
      </Selection>
      {ask === "cancel" && (
        <Confirm title={`Cancel ${plural(active.length, "job")}?`} action={`Cancel ${plural(active.length, "job")}`} onClose={() => setAsk(null)} onConfirm={() => void each(active, "canceled", post("cancel"))}>
          <p>Their ranks get a moment to end, their outputs are kept.</p>
          <ul class="names">{active.map((job) => <li key={job.name}>{job.display_name}</li>)}</ul>
        </Confirm>
      )}
      {ask === "tag" && (
        <TagDialog many={jobs.length} onClose={() => setAsk(null)} onTag={(key, value) => void each(jobs, "tagged", (job) => send("PATCH", api(workspace, ["jobs", job.name]), { tags: { [key]: value } }))} />
      )}
    </>
  );
}

function TagDialog({ many, onClose, onTag }: { many: number; onClose: () => void; onTag: (key: string, value: string) => void }) {
  const [key, setKey] = useState("");
  const [value, setValue] = useState("");
  return (
    <Dialog title={`Tag ${plural(many, "job")}`} onClose={onClose}>
      <form onSubmit={(event) => { event.preventDefault(); onClose(); onTag(key.trim(), value.trim()); }}>
        <div class="dialog-body">
          <TextField label="Tag" value={key} onInput={setKey} required autoFocus />
          <TextField label="Value" value={value} onInput={setValue} />
        </div>
        <footer class="dialog-foot"><Button onClick={onClose}>Close</Button><Button kind="primary" submit disabled={!key.trim()}>Tag</Button></footer>
      </form>
    </Dialog>
  );
}
