import { describe, expect, it } from "vitest";
import { aboutText, amount, isExpired, isServerOwner, isSession, limitOf, owners, parseAmount, roleIn, type User } from "../src/pages/settings/settings";

const user = (name: string, roles: User["roles"]): User => ({ name, roles, created_at: "2026-01-01T00:00:00Z" });

describe("roles", () => {
  it("are the higher one of here and everywhere", () => {
    expect(roleIn(user("a", { "*": "reader", vision: "contributor" }), "vision")).toBe("contributor");
    expect(roleIn(user("a", { "*": "owner", vision: "reader" }), "vision")).toBe("owner");
    expect(roleIn(user("a", { other: "owner" }), "vision")).toBeNull();
  });

  it("say whom to ask", () => {
    const users = [user("a", { "*": "owner" }), user("b", { vision: "owner" }), user("c", { vision: "reader" })];
    expect(owners(users, "vision")).toEqual(["a", "b"]);
    expect(users.map(isServerOwner)).toEqual([true, false, false]);
  });
});

describe("quotas", () => {
  it("are written with their units", () => {
    expect([amount("nodes", 1200), amount("run_time_s", 43_200), amount("storage_bytes", 5e10)]).toEqual(["1,200", "12 h", "50.0 GB"]);
    expect(["", "*", "anna"].map(limitOf)).toEqual(["all together", "each person", "anna"]);
  });

  it("are read with their units", () => {
    expect(parseAmount("run_time_s", "12h")).toBe(43_200);
    expect(parseAmount("run_time_s", "1.5 h")).toBe(5400);
    expect(parseAmount("storage_bytes", "50 GB")).toBe(5e10);
    expect(parseAmount("nodes", " 4 ")).toBe(4);
  });

  it("refuse what is no amount of theirs", () => {
    expect(parseAmount("nodes", "4h")).toBeNull();
    expect(parseAmount("nodes", "1.5")).toBeNull();
    expect(parseAmount("run_time_s", "5 GB")).toBeNull();
    expect(parseAmount("storage_bytes", "-1")).toBeNull();
    expect(parseAmount("storage_bytes", "")).toBeNull();
  });
});

describe("tokens", () => {
  it("are sessions of the page by their names", () => {
    expect(["page-1a2b", "sign-in-page-1", "laptop", "my-page-1"].map((name) => isSession({ name }))).toEqual([true, true, false, false]);
  });

  it("expire at their time, or never", () => {
    expect(isExpired({ expires_at: "2026-01-01T00:00:00Z" }, Date.parse("2026-01-01T00:00:00Z"))).toBe(true);
    expect(isExpired({ expires_at: null }, Date.now())).toBe(false);
  });
});

describe("a line of the audit", () => {
  it("says what it was about, without what is empty", () => {
    expect(aboutText({ person: "anna", role: null, in_workspace: "", limits: { nodes: 4 } })).toBe('person anna, limits {"nodes":4}');
    expect(aboutText(undefined)).toBe("");
  });
});
