/** The stages of a job in proportion to the time that they took. */
import type { Job, Stage } from "../../api/model";
import { ENDED } from "../../api/model";
import { Duration } from "../../components/Duration";
import { time } from "../../lib/format";
import { useNow } from "../../lib/now";

const EXPECTED = ["Preparing", "Scaling", "Running", "Post-Processing"];

export function Stages({ job }: { job: Pick<Job, "status" | "stages" | "ended_at"> }) {
  const isOver = ENDED.has(job.status);
  const now = useNow(isOver ? 0 : 1000);
  const last = lastOfEach(job.stages);
  const secondsOf = (stage: Stage | undefined): number => {
    if (!stage) return 0;
    return stage.duration_s ?? ((stage.end ? Date.parse(stage.end) : now) - Date.parse(stage.start)) / 1000;
  };
  const total = [...last.values()].reduce((sum, stage) => sum + secondsOf(stage), 0) || 1;
  const failed = job.status === "Failed" ? [...last.keys()].filter((name) => name !== "Post-Processing").at(-1) : "";
  return (
    <ol class="stages" aria-label="Stages">
      {EXPECTED.map((name) => {
        const stage = last.get(name);
        const isNow = !!stage && !stage.end && !isOver;
        const state = !stage ? "todo" : isNow ? "now" : name === failed ? "failed" : "done";
        return (
          <li key={name} class={`stage stage-${state}`} style={{ flexGrow: String(Math.max(0.12, secondsOf(stage) / total)) }} title={stage ? `${time(stage.start)}${stage.waited_for ? `: ${stage.waited_for}` : ""}` : undefined}>
            <span class="stage-bar" aria-hidden="true" />
            <span class="stage-name">{name}</span>
            <span class="stage-time">
              {stage ? <Duration start={stage.start} end={isOver ? (stage.end ?? job.ended_at) : stage.end} seconds={stage.duration_s} /> : "–"}
              {isNow && <span class="visually-hidden">, going on</span>}
            </span>
          </li>
        );
      })}
    </ol>
  );
}

/** A job that was tried again has stages of each attempt: those of the last one. */
function lastOfEach(stages: readonly Stage[]): Map<string, Stage> {
  const last = new Map<string, Stage>();
  for (const stage of stages) {
    last.delete(stage.name);
    last.set(stage.name, stage);
  }
  return last;
}
