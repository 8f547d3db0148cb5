// Loads the front end of azureml-widgets, as its package ships it, into JupyterLab 3 and 4.
//
// The package holds it for the builds of JupyterLab before version 3: one AMD module, written for
// widget classes that can be called without `new`. This file is what a prebuilt extension begins
// with: JupyterLab calls `init` with the modules that extensions share, then `get`.
(() => {
  const here = document.currentScript.src;
  const shown = "@jupyter-widgets/base";
  let shared = {};

  // `Base.apply(this, …)`, the way to a super class before there was `class`.
  const callable = (kind) =>
    new Proxy(kind, {
      apply: (target, self, given) => Reflect.construct(target, given, self.constructor),
    });

  // The one that JupyterLab's own widgets use: two would not know each other.
  const base = async () => {
    const offered = Object.values(shared[shown] ?? {});
    const one = offered.find((version) => version.loaded) ?? offered[0];
    if (one === undefined) {
      throw new Error("azureml_widgets needs ipywidgets in the Python that runs JupyterLab");
    }
    return (await one.get())();
  };

  const load = async () => {
    const found = await base();
    const given = {
      ...found,
      DOMWidgetModel: callable(found.DOMWidgetModel),
      DOMWidgetView: callable(found.DOMWidgetView),
    };
    const answer = await fetch(new URL("plugin.js", here));
    if (!answer.ok) {
      throw new Error(`${answer.url}: ${answer.status}`);
    }
    // Without it, the front end fetches a script of Microsoft's telemetry, asked or not.
    window.appInsights ??= { trackEvent() {} };
    let plugin;
    const define = (names, make) => {
      plugin = make(...names.map((name) => (name === shown ? given : undefined)));
    };
    new Function("define", await answer.text())(define);
    return () => plugin;
  };

  window._JUPYTERLAB ??= {};
  window._JUPYTERLAB.azureml_widgets = {
    init: (scope) => {
      shared = scope;
    },
    get: load,
  };
})();
