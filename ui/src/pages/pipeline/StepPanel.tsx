/** All that is known of one step: how it went and why, what it takes, who takes of it. */
import { useEffect, useRef } from "preact/hooks";
import { Badge, StatusSign, toneOf } from "../../components/Badge";
import { Button } from "../../components/Button";
import { Duration } from "../../components/Duration";
import { Facts } from "../../components/Panel";
import { jobHref } from "../../lib/address";
import { time } from "../../lib/format";
import { type Explanation, stateOf, type Step, takersOf } from "./steps";

interface Props {
  step: Step;
  steps: readonly Step[];
  explanation: Explanation | undefined;
  workspace: string;
  hrefOf: (step: string) => string;
  onClose: () => void;
}

export function StepPanel({ step, steps, explanation, workspace, hrefOf, onClose }: Props) {
  const head = useRef<HTMLHeadingElement>(null);
  useEffect(() => {
    // On a phone it lies below the graph.
    const box = head.current?.getBoundingClientRect();
    if (box && box.top > innerHeight - 80) head.current?.scrollIntoView({ block: "center" });
  }, [step.name]);
  const takers = takersOf(step.name, steps);
  return (
    <section class="panel step-panel" aria-label={`Step ${step.name}`}>
      <header class="panel-head">
        <h2 ref={head}>{step.name}</h2>
        <Button kind="quiet" icon="close" label="Close the step" onClick={onClose} />
      </header>
      <div class="panel-body">
        <p class="step-state"><StepStatus step={step} /></p>
        <Facts rows={[
          ["Job", step.job && <JobOfStep step={step} workspace={workspace} />],
          ["Reused from", step.reused_from && <a class="link" href={jobHref(workspace, step.reused_from, { step: step.name })}>{step.reused_from}</a>],
          ["Reason", !explanation?.reasons.includes(step.reason) && step.reason],
          ["Component", step.component && <span class="mono">{step.component}</span>],
          ["Started", step.started_at && time(step.started_at)],
          ["Ended", step.ended_at && time(step.ended_at)],
          ["Duration", (step.started_at || step.duration_s != null) && <Duration start={step.started_at} end={step.ended_at} seconds={step.duration_s} />],
        ]} />
        {explanation && <Why explanation={explanation} workspace={workspace} />}
        {Object.keys(step.takes).length > 0 && (
          <>
            <h3>Inputs</h3>
            <Facts rows={Object.entries(step.takes).map(([input, taken]) => [input, <span key={input}>output <span class="mono">{taken.output}</span> of <a class="link" href={hrefOf(taken.step ?? "")}>{taken.step}</a></span>] as const)} />
          </>
        )}
        {takers.length > 0 && (
          <>
            <h3>Used by</h3>
            <p class="step-takers">{takers.map((name, at) => <span key={name}>{at > 0 && ", "}<a class="link" href={hrefOf(name)}>{name}</a></span>)}</p>
          </>
        )}
      </div>
    </section>
  );
}

/** The job's page has the logs. */
function JobOfStep({ step, workspace }: { step: Step; workspace: string }) {
  if (!step.status) return <span class="dim">{step.job}, deleted</span>;
  return <><a class="link" href={jobHref(workspace, step.job)}>{step.job}</a> · <a class="link" href={jobHref(workspace, step.job, { tab: "logs" })}>logs</a></>;
}

function Why({ explanation, workspace }: { explanation: Explanation; workspace: string }) {
  const { is_reused: isReused, job, other, reasons } = explanation;
  if (!reasons.length) return null;
  return (
    <>
      <h3>{isReused ? "Why it was reused" : job ? "Why it ran" : "Why it has not run"}</h3>
      <ul class="step-reasons">{reasons.map((reason, at) => <li key={at}>{reason}</li>)}</ul>
      {!isReused && other && <p class="dim step-other">Compared with <a class="link" href={jobHref(workspace, other)}>{other}</a></p>}
    </>
  );
}

export function StepStatus({ step }: { step: Step }) {
  const { status, word } = stateOf(step);
  return (
    <>
      <span class={`status status-${toneOf(status)}`}><StatusSign status={status} />{word}</span>
      {step.reused_from && <>{" "}<Badge tone="grey" title={`Of pipeline ${step.reused_from}`}>Reused</Badge></>}
    </>
  );
}
