import { describe, expect, it } from "vitest";
import { adding, type Notifications, recipientsOf, removing } from "../src/pages/settings/notifications";

const told: Notifications = {
  notification_settings: { email_on: ["JobFailed"], emails: ["ann@example.org", "bob@example.org"] },
  notify: [{ url: "https://a.example/x", on: "Cancelled" }, { url_env: "HOOK_URL_1", secret_env: "S" }],
  notify_secrets: { HOOK_URL_1: "*****", S: "*****" },
};

describe("whom a workspace tells", () => {
  it("is listed with what they are told of", () => {
    const rows = recipientsOf(told);
    expect(rows.map(({ label, on }) => [label, on.join(" ")])).toEqual([
      ["https://a.example/x", "canceled"], ["HOOK_URL_1", "completed failed canceled"], ["ann@example.org", "failed"], ["bob@example.org", "failed"],
    ]);
    expect(rows.map(({ isSecret, isSigned }) => [isSecret, isSigned])).toEqual([[false, false], [true, true], [false, false], [false, false]]);
  });

  it("gets a webhook whose secrets have names of their own", () => {
    const change = adding(told, { address: "https://b.example/y", on: ["failed"], secret: "correct horse", isSecret: true });
    expect(change.notify?.at(-1)).toEqual({ on: ["failed"], url_env: "HOOK_URL_2", secret_env: "HOOK_SECRET_1" });
    expect(change.notify).toHaveLength(3);
    expect(change.notify_secrets).toEqual({ HOOK_URL_2: "https://b.example/y", HOOK_SECRET_1: "correct horse" });
  });

  it("gets an address once", () => {
    const change = adding(told, { address: "ann@example.org", on: ["completed", "canceled"], secret: "", isSecret: false });
    expect(change).toEqual({ notification_settings: { email_on: ["JobCompleted", "JobCancelled"], emails: ["ann@example.org", "bob@example.org"] } });
  });

  it("loses the one that is removed", () => {
    expect(removing(told, 0)).toEqual({ notify: [told.notify[1]] });
    expect(removing(told, 3)).toEqual({ notification_settings: { email_on: ["JobFailed"], emails: ["ann@example.org"] } });
    const one = { ...told, notification_settings: { email_on: ["JobFailed"], emails: ["ann@example.org"] } };
    expect(removing(one, 2)).toEqual({ notification_settings: {} });
  });
});
