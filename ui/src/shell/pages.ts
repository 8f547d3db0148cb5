/** Which module shows which section. Each is a file of its own, loaded when it is first visited. */
import type { ComponentType } from "preact";
import type { IconName } from "../components/Icon";

export type Load = () => Promise<{ default: ComponentType<{ names: string[] }> }>;

interface Section {
  id: string;
  label: string;
  icon: IconName;
  /** After `g`. */
  key: string;
  /** The list. */
  page: Load;
  /** What one name in it leads to; the list gets the name when there is none. */
  one?: Load;
}

export const SECTIONS: readonly Section[] = [
  { id: "jobs", label: "Jobs", icon: "jobs", key: "j", page: () => import("../pages/jobs/JobsPage"), one: () => import("../pages/job/JobPage") },
  { id: "compare", label: "Compare", icon: "compare", key: "c", page: () => import("../pages/compare/ComparePage") },
  { id: "models", label: "Models", icon: "models", key: "m", page: () => import("../pages/models/ModelsPage") },
  { id: "data", label: "Data", icon: "data", key: "d", page: () => import("../pages/data/DataPage") },
  { id: "environments", label: "Environments", icon: "environments", key: "e", page: () => import("../pages/environments/EnvironmentsPage") },
  { id: "endpoints", label: "Endpoints", icon: "endpoints", key: "p", page: () => import("../pages/endpoints/EndpointsPage") },
  { id: "computes", label: "Compute", icon: "compute", key: "u", page: () => import("../pages/compute/ComputePage") },
  { id: "settings", label: "Settings", icon: "settings", key: "s", page: () => import("../pages/settings/SettingsPage") },
];

export function pageFor(section: string, names: readonly string[]): Load | null {
  const found = SECTIONS.find((each) => each.id === section);
  if (!found) return null;
  return names.length && found.one ? found.one : found.page;
}
