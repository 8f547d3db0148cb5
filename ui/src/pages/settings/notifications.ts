/** Whom a workspace tells of the end of its jobs, as the native API has it. */

export const ENDS = [["completed", "JobCompleted"], ["failed", "JobFailed"], ["canceled", "JobCancelled"]] as const;
export type End = (typeof ENDS)[number][0];

export interface Webhook {
  url?: string;
  url_env?: string;
  secret_env?: string;
  on?: string | string[];
}

export interface Notifications {
  notification_settings: { email_on?: string | string[]; emails?: string[] };
  notify: Webhook[];
  /** Names with `*****` for each value. */
  notify_secrets: Record<string, string>;
}

export interface Recipient {
  kind: "webhook" | "email";
  /** What people know it by: an address, or the name of the secret that holds it. */
  label: string;
  isSecret: boolean;
  isSigned: boolean;
  on: End[];
}

export interface Wanted {
  address: string;
  on: readonly End[];
  /** What signs its messages; empty for none. */
  secret: string;
  /** Whether the URL is shown to nobody. */
  isSecret: boolean;
}

export function recipientsOf(told: Notifications): Recipient[] {
  const emailOn = list(told.notification_settings.email_on);
  const on = ENDS.filter(([, event]) => emailOn.includes(event)).map(([end]) => end);
  return [
    ...told.notify.map((hook): Recipient => ({ kind: "webhook", label: hook.url ?? hook.url_env ?? "", isSecret: !hook.url, isSigned: !!hook.secret_env, on: endsOf(hook) })),
    ...(told.notification_settings.emails ?? []).map((email): Recipient => ({ kind: "email", label: email, isSecret: false, isSigned: false, on })),
  ];
}

function endsOf(hook: Webhook): End[] {
  const words = list(hook.on).map((word) => word.toLowerCase().replace("cancelled", "canceled"));
  return ENDS.map(([end]) => end).filter((end) => !words.length || words.includes(end));
}

function list(value: string | string[] | undefined): string[] {
  return value === undefined ? [] : typeof value === "string" ? [value] : value;
}

export function isEmail(address: string): boolean {
  return address.includes("@") && !address.includes("://");
}

/** The change that adds a recipient. All e-mail of a workspace is about the same ends. */
export function adding(told: Notifications, { address, on, secret, isSecret }: Wanted): Partial<Notifications> {
  if (isEmail(address)) {
    const emails = [...new Set([...(told.notification_settings.emails ?? []), address])];
    return { notification_settings: { email_on: ENDS.filter(([end]) => on.includes(end)).map(([, event]) => event), emails } };
  }
  const secrets: Record<string, string> = {};
  const hook: Webhook = { on: [...on] };
  if (isSecret) secrets[(hook.url_env = unused("HOOK_URL", told.notify_secrets))] = address;
  else hook.url = address;
  if (secret) secrets[(hook.secret_env = unused("HOOK_SECRET", told.notify_secrets))] = secret;
  return { notify: [...told.notify, hook], notify_secrets: secrets };
}

function unused(start: string, names: Record<string, string>): string {
  let number = 1;
  while (`${start}_${number}` in names) number += 1;
  return `${start}_${number}`;
}

/** The change that removes the recipient of this place in `recipientsOf`. */
export function removing(told: Notifications, place: number): Partial<Notifications> {
  if (place < told.notify.length) return { notify: told.notify.filter((_, at) => at !== place) };
  const emails = (told.notification_settings.emails ?? []).filter((_, at) => at !== place - told.notify.length);
  return { notification_settings: emails.length ? { ...told.notification_settings, emails } : {} };
}
