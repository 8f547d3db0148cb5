"""The inference server's application, with the error of a scoring script that can't be loaded.

Owns: noticing that it serves, naming what went wrong in the script.
Leaves: everything that is served to azureml-inference-server-http.
Always: none of the server's modules is loaded twice: with pydantic 1 its settings can't be.
"""

import os

import abandoned_requests
import scoring_error


def set_logs() -> None:
    """Read the settings of the server's logs again: gunicorn has made its own since."""
    try:
        from azureml_inference_server_http.constants import PACKAGE_ROOT
        from azureml_inference_server_http.log_config import load_logging_config
        from azureml_inference_server_http.server.config import config
    except ImportError:  # before 0.8, where gunicorn reads them
        return
    script = os.path.dirname(os.path.realpath(config.entry_script))
    for folder in (config.app_root, script, PACKAGE_ROOT):
        if load_logging_config(folder):
            return


try:
    set_logs()
    from azureml_inference_server_http.server.entry import app
except SystemExit as error:
    scoring_error.write(scoring_error.describe(error))
    raise
except BaseException as error:
    scoring_error.write(scoring_error.describe(error))
    raise SystemExit(3) from error  # gunicorn's code for an app that can't be loaded

with open(os.path.join(os.environ["TORCHYARD_SERVING_STATE"], "ready"), "a") as ready:
    ready.write(".")
app = abandoned_requests.WithoutAbandoned(app)

__all__ = ["app"]
