import { describe, expect, it } from "vitest";
import { computeName, curl, type Endpoint, modelOf, toneOfState, trafficText } from "../src/pages/endpoints/endpoints";

const endpoint: Endpoint = {
  name: "digits", auth_mode: "key", traffic: { blue: 90, green: 10 }, mirror_traffic: {}, provisioning_state: "Succeeded",
  message: "", scoring_uri: "http://127.0.0.1:8766/e/digits/score", owner: "me", created_at: "", changed_at: "",
};

describe("an endpoint", () => {
  it("tells its traffic, the greatest share first, without deployments that have none", () => {
    expect(trafficText({ green: 10, blue: 90, old: 0 })).toBe("blue 90 %, green 10 %");
    expect(trafficText({ old: 0 })).toBe("");
  });

  it("has its state's colour", () => {
    expect(["Succeeded", "Ready", "Failed", "Updating"].map(toneOfState)).toEqual(["green", "green", "red", "amber"]);
  });

  it("names registered models alone", () => {
    expect(modelOf("azureml:digits:3")).toEqual(["digits", "3"]);
    expect(modelOf({ path: "./model" })).toBeNull();
    expect(modelOf("./model")).toBeNull();
  });

  it("names a cluster without its scheme", () => {
    expect(computeName("azureml:cpu-cluster")).toBe("cpu-cluster");
    expect(computeName("local")).toBe("local");
  });

  it("is asked by a line that holds no key and quotes what a shell would read", () => {
    expect(curl(endpoint)).toContain("$(yard online-endpoint get-credentials -n digits --query primaryKey -o tsv)");
    expect(curl({ ...endpoint, auth_mode: "aml_token" })).toContain("--query accessToken");
    expect(curl({ ...endpoint, scoring_uri: "http://x/'$(touch y)'" })).toContain(`'http://x/'\\''$(touch y)'\\'''`);
  });
});
