/** The steps of a pipeline as a graph. */
import { useMemo } from "preact/hooks";
import { Graph } from "../../graph/Graph";
import { arrowsFrom, type GraphNode } from "../../graph/nodes";
import { duration } from "../../lib/format";
import { useNow } from "../../lib/now";
import { isRunning, sayProgress, sayStep, stateOf, type Step } from "./steps";

interface Props {
  name: string;
  steps: readonly Step[];
  selected: string;
  onSelect: (name: string) => void;
}

export function StepGraph({ name, steps, selected, onSelect }: Props) {
  const nodes = useMemo(() => steps.map((step) => nodeOf(step, steps)), [steps]);
  const chosen = useMemo(() => (selected ? [selected] : []), [selected]);
  return <Graph name={name} title="Graph" of="steps" summary={sayProgress(steps)} nodes={nodes} selected={chosen} onOpen={onSelect} onClose={selected ? () => onSelect("") : undefined} />;
}

function nodeOf(step: Step, steps: readonly Step[]): GraphNode {
  const { status, word } = stateOf(step);
  return {
    id: step.name,
    label: step.name.slice(step.name.lastIndexOf(".") + 1),
    title: step.name,
    say: () => sayStep(step, steps),
    status,
    word: step.reused_from ? "Reused" : word,
    time: <StepTime step={step} />,
    isDashed: !!step.reused_from,
    opens: true,
    after: arrowsFrom(Object.entries(step.takes).map(([input, { step: from = "", output = "" }]) => ({ from, output, input }))),
  };
}

/** Counts on while its job runs. */
function StepTime({ step }: { step: Step }) {
  const goesOn = isRunning(step) && step.duration_s == null;
  const now = useNow(goesOn ? 1000 : 0);
  if (!goesOn || !step.started_at) return <>{step.status || step.outcome ? duration(step.duration_s) : ""}</>;
  return <>{duration(Math.max(0, Math.floor((now - Date.parse(step.started_at)) / 1000)))}</>;
}
