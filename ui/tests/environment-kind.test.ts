import { describe, expect, it } from "vitest";
import { imageOf, type JobEnvironment, kindOf } from "../src/pages/job/environment";

const of = (spec: Partial<JobEnvironment["spec"]>): Pick<JobEnvironment, "spec"> => ({ spec: { python: "3.11", requirements: [], platform: "linux-x86_64-cpu", conda: [], channels: [], image: null, variables: [], ...spec } });

describe("the kind of a job's environment", () => {
  it("is what it is made of", () => {
    expect(kindOf(of({}))).toBe("Python");
    expect(kindOf(of({ requirements: ["six==1.17.0"] }))).toBe("Python packages");
    expect(kindOf(of({ requirements: ["six"], conda: ["numpy=1.26"] }))).toBe("conda packages");
    expect(kindOf(of({ image: { name: "ubuntu:22.04" } }))).toBe("image");
    expect(kindOf(of({ image: { name: "ubuntu:22.04" }, conda: ["numpy"] }))).toBe("image with packages");
    expect(kindOf(of({ image: { name: "", dockerfile: "docker/Dockerfile" } }))).toBe("Dockerfile");
  });

  it("of an image names what it begins with", () => {
    expect(imageOf(of({ image: { name: "ubuntu:22.04" } }))).toBe("ubuntu:22.04");
    expect(imageOf(of({ image: { name: "", dockerfile: "docker/Dockerfile" } }))).toBe("docker/Dockerfile");
    expect(imageOf(of({}))).toBe("");
  });
});
