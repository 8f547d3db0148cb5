/** Start the page. */
import "uplot/dist/uPlot.min.css";
import "./styles/fonts.css";
import "./styles/tokens.css";
import "./styles/base.css";
import "./styles/components.css";
import "./styles/job.css";
import "./styles/pages.css";
import { render } from "preact";
import { startKeys } from "./lib/keys";
import { startRouter } from "./lib/router";
import { applyTheme } from "./lib/theme";
import { App } from "./shell/App";

applyTheme();
startRouter();
startKeys();
render(<App />, document.getElementById("page") as HTMLElement);
