import { describe, expect, it } from "vitest";
import { busyNodes, busyShare, hours, nodeText, occupancyText, stateCounts, steps } from "../src/pages/compute/computes";

const counts = { running_node_count: 2, preparing_node_count: 1, idle_node_count: 1, unusable_node_count: 0 };

describe("nodes of a cluster", () => {
  it("are counted by state, those that work first", () => {
    expect(stateCounts({ node_state_counts: counts })).toEqual([["running", 2], ["preparing", 1], ["idle", 1]]);
    expect(busyNodes({ node_state_counts: counts })).toBe(3);
  });

  it("are told in words", () => {
    expect(occupancyText({ node_state_counts: counts, max_instances: 6 })).toBe("2 running, 1 preparing, 1 idle; at most 6");
    expect(occupancyText({ node_state_counts: {}, max_instances: 4 })).toBe("no nodes; at most 4");
    expect(nodeText({ cores: 8, gpus: 2, gpu_kind: "H100" }, "64 GB")).toBe("8 cores, 64 GB, 2 × H100");
    expect(nodeText({ cores: null, gpus: null, gpu_kind: "" }, "")).toBe("");
  });
});

describe("the number of nodes over time", () => {
  const at = (seconds: number, current: number, running: number) => ({ at: new Date(seconds * 1000).toISOString(), current, running, target: current, machines: null, reason: "" });

  it("holds each count until the next one, and the last to the end", () => {
    const { current, running, most } = steps([at(0, 2, 0), at(50, 4, 4)], 0, 100_000, 100, 40, 4);
    expect(most).toBe(4);
    expect(current).toBe("M0.0 40V20.0H50.0V0.0H100V40Z");
    expect(running).toBe("M0.0 40V40.0H50.0V0.0H100V40Z");
  });

  it("begins with what there was before the period", () => {
    expect(steps([at(10, 3, 3), at(20, 1, 1)], 60_000, 100_000, 40, 10, 1).current).toBe("M0.0 10V0.0H40V10Z");
  });

  it("grows its top with the counts, and draws nothing without any", () => {
    expect(steps([at(0, 9, 1)], 0, 1000, 10, 10, 4).most).toBe(9);
    expect(steps([], 0, 1000, 10, 10).current).toBe("");
  });
});

describe("node-hours", () => {
  it("are shared between jobs and idle nodes", () => {
    expect(busyShare([{ day: "2026-01-01", node_hours: 3, busy_hours: 1 }, { day: "2026-01-02", node_hours: 1, busy_hours: 1 }])).toBe(0.5);
    expect(busyShare([])).toBeNull();
  });

  it("are written with the digits that matter", () => {
    expect([0, 0.004, 0.25, 3.44, 1250.4].map(hours)).toEqual(["0 h", "< 0.01 h", "0.25 h", "3.4 h", "1,250 h"]);
  });
});
